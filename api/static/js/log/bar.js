// A vertical bar beside the log. It shows which part of the log is visible; dragging it or pressing keys moves there.
import { html, useRef, useState } from "../../vendor/preact.js";
import { number } from "../format.js";

const SHARE = 20; // Page Up and Page Down move by a twentieth of the log

/**
 * first: number of the first kept line. total: number after the last line. top: number of the first visible line.
 * shown: count of visible lines, which sets the size of the thumb. to(n): scroll to line n.
 */
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
