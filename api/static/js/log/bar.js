// Where in the whole log the window is: a bar beside it that can be dragged, and moved by keys.
import { html, useRef, useState } from "../../vendor/preact.js";
import { number } from "../format.js";

const SHARE = 20; // of the log: how far a page key goes

/** first, total, top: line numbers; shown: lines on the screen; to(n): go there. */
export function PositionBar({ first, total, top, shown, to }) {
  const box = useRef(null);
  const [drag, setDrag] = useState(null);
  const lines = Math.max(1, total - first);
  const at = (event) => {
    const area = box.current.getBoundingClientRect();
    const part = Math.min(1, Math.max(0, (event.clientY - area.top) / area.height));
    return Math.min(total - 1, first + Math.floor(part * lines));
  };
  const down = (event) => {
    box.current.setPointerCapture(event.pointerId);
    setDrag(at(event));
  };
  const move = (event) => drag !== null && setDrag(at(event));
  const up = () => {
    if (drag !== null) to(drag);
    setDrag(null);
  };
  const now = Math.min(Math.max(first, drag ?? top), Math.max(first, total - 1));
  const keys = (event) => {
    const page = Math.max(1, Math.floor(lines / SHARE));
    const by = { ArrowUp: -1, ArrowLeft: -1, ArrowDown: 1, ArrowRight: 1, PageUp: -page, PageDown: page, Home: -lines, End: lines }[event.key];
    if (by === undefined || total <= first) return;
    event.preventDefault();
    to(Math.min(total - 1, Math.max(first, now + by)));
  };
  const height = Math.min(100, Math.max(4, (shown / lines) * 100));
  const where = (drag ?? top) - first;
  const place = Math.min(100 - height, (where / lines) * 100);
  return html`<div
    ref=${box}
    class="log-bar"
    role="slider"
    tabindex="0"
    aria-label="Position in the log"
    aria-controls="log-scroll"
    aria-orientation="vertical"
    aria-valuemin=${first + 1}
    aria-valuemax=${Math.max(first + 1, total)}
    aria-valuenow=${now + 1}
    aria-valuetext=${total > first ? `Line ${number(now + 1)} of ${number(total)}` : "No lines"}
    onKeyDown=${keys}
    onPointerDown=${down}
    onPointerMove=${move}
    onPointerUp=${up}
    onPointerCancel=${() => setDrag(null)}
  >
    <div class="log-thumb" style=${{ top: `${place}%`, height: `${height}%` }}></div>
    ${drag !== null && html`<div class="at" style=${{ top: `${place}%` }}>Line ${number(drag + 1)}</div>`}
  </div>`;
}
