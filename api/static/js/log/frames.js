// A dialog that shows the history of a redrawn line, frame by frame.
import { html, useEffect, useRef, useState } from "../../vendor/preact.js";
import { number } from "../format.js";
import { show } from "../parts/dialog.js";
import { fill } from "./text.js";

export function showFrames(source, line) {
  show(() => html`<${Frames} source=${source} line=${line} />`, { label: `Line ${line.n + 1}, as it was drawn` });
}

function Frames({ source, line }) {
  const [frames, setFrames] = useState(null);
  const [at, setAt] = useState(0);
  const [problem, setProblem] = useState(null);
  const box = useRef(null);
  const slider = useRef(null);
  useEffect(() => {
    source.frames(line.n).then(setFrames, (error) => setProblem(error.message));
  }, []);
  useEffect(() => slider.current?.focus(), [frames]);
  const rows = frames?.[at];
  useEffect(() => {
    if (!box.current || !rows) return;
    box.current.replaceChildren();
    let style;
    rows.forEach((text, index) => {
      if (index) box.current.append("\n");
      style = fill(box.current, text, null, style);
    });
  }, [rows]);
  return html`<div class="inside frames-view">
    <h2>Line ${number(line.n + 1)}, as it was drawn</h2>
    ${problem && html`<p class="problem" role="alert">${problem}</p>`}
    ${frames && !frames.length && html`<p>The history of this line is no longer kept.</p>`}
    ${frames?.length > 0 &&
    html`<pre ref=${box} tabindex="0"></pre>
      <label>Frame ${at + 1} of ${frames.length}
        <input ref=${slider} type="range" min="0" max=${frames.length - 1} value=${at} onInput=${(event) => setAt(Number(event.target.value))} />
      </label>`}
    <form method="dialog" class="buttons"><button>Close</button></form>
  </div>`;
}
