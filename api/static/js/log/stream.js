// Reads server-sent events in bulk. EventSource dispatches a DOM event for each of them, which takes nearly all the
// time at 10,000 lines a second. This stream parses each chunk of the response as a whole.

const SILENT_MS = 40_000; // the server sends something at least every 15 s
const END = "\n\n";
const DATA = "\ndata: ";

/** Group the `data` texts of consecutive events of the same kind: [["line", ["{…}", "{…}"]], ["done", ["{…}"]]]. */
export function runsOf(blocks) {
  const runs = [];
  for (const block of blocks) {
    const data = block.indexOf(DATA);
    if (data < 0) continue; // a comment or a retry interval
    const name = block.indexOf("event: ") + 7;
    const kind = block.slice(name, block.indexOf("\n", name));
    if (runs.at(-1)?.[0] !== kind) runs.push([kind, []]);
    const end = block.indexOf("\n", data + 1);
    runs.at(-1)[1].push(end < 0 ? block.slice(data + DATA.length) : block.slice(data + DATA.length, end));
  }
  return runs;
}

export class EventStream {
  /**
   * opened(): called when the response begins. heard(kind, bodies): called with consecutive events of one kind.
   * lost(): called when the stream ends, fails or falls silent, but not after `close`.
   */
  constructor(address, { opened, heard, lost }) {
    Object.assign(this, { opened, heard, lost });
    this.abort = new AbortController();
    this.read(address).then(
      () => this.end(),
      () => this.end(), // refused, cut off or closed
    );
  }

  close() {
    this.closed = true;
    clearTimeout(this.silence);
    this.abort.abort();
  }

  end() {
    if (this.closed) return;
    this.close();
    this.lost();
  }

  wait() {
    clearTimeout(this.silence);
    this.silence = setTimeout(() => this.end(), SILENT_MS);
  }

  async read(address) {
    const answer = await fetch(address, { headers: { Accept: "text/event-stream" }, cache: "no-store", signal: this.abort.signal });
    if (!answer.ok) return;
    this.opened();
    this.wait();
    const decoder = new TextDecoder();
    const reader = answer.body.getReader();
    let rest = "";
    for (let piece = await reader.read(); !piece.done && !this.closed; piece = await reader.read()) {
      this.wait();
      const blocks = (rest + decoder.decode(piece.value, { stream: true })).split(END);
      rest = blocks.pop();
      for (const [kind, texts] of runsOf(blocks)) this.tell(kind, texts);
    }
  }

  tell(kind, texts) {
    if (this.closed) return;
    try {
      this.heard(kind, JSON.parse(`[${texts.join()}]`));
    } catch (error) {
      reportError(error); // a bug in the page; the connection itself is intact
    }
  }
}
