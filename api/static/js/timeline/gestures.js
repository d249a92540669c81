// Drag, pinch and wheel gestures on the timeline. The time under a finger follows that finger.
import { useEffect, useRef, useState } from "../../vendor/preact.js";
import { moved, zoomed } from "./window.js";

const DRAG_PX = 4; // a shorter movement is a click
const REST_MS = 250; // a wheel gesture ends this long after its last event
const NOTCH = 0.0015; // zoom per unit of deltaY, as an exponent of e

/**
 * Return [shown, handlers]. `shown` is the window during a gesture, otherwise `view`. The caller spreads `handlers`
 * onto the chart's element and passes that element's ref as `box`.
 * plot(): the axis's bounding rectangle. now(): the current time, ms. change(window): called when a gesture ends.
 */
export function useGestures({ view, plot, box, change, now }) {
  const [held, setHeld] = useState(null);
  const shown = held ?? view;
  const state = useRef({ fingers: new Map(), dragged: false, timer: 0 });
  state.current.shown = shown;
  const timeAt = (x) => {
    const { left, width } = plot();
    return shown.from + ((x - left) / width) * (shown.to - shown.from);
  };
  const grab = () => {
    for (const finger of state.current.fingers.values()) finger.time = timeAt(finger.x);
  };
  const show = (next) => {
    state.current.shown = next;
    setHeld(next);
  };
  const rest = () => {
    clearTimeout(state.current.timer);
    change(state.current.shown);
    setHeld(null);
  };
  const down = (event) => {
    if (event.button > 0) return;
    const { fingers } = state.current;
    if (!fingers.size) state.current.dragged = false;
    fingers.set(event.pointerId, { x: event.clientX, begin: event.clientX });
    grab();
  };
  const move = (event) => {
    const { fingers } = state.current;
    const finger = fingers.get(event.pointerId);
    if (!finger) return;
    finger.x = event.clientX;
    if (!state.current.dragged && fingers.size < 2 && Math.abs(finger.x - finger.begin) < DRAG_PX) return;
    if (!state.current.dragged) for (const id of fingers.keys()) event.currentTarget.setPointerCapture(id);
    state.current.dragged = true;
    const { left, width } = plot();
    const [one, other] = fingers.values();
    const { from, to } = state.current.shown;
    const apart = other ? other.x - one.x : 0;
    const times = other ? other.time - one.time : 0;
    const span = apart && times / apart > 0 ? (times / apart) * width : to - from;
    const begin = one.time - ((one.x - left) / width) * span;
    show(zoomed(moved({ from: begin, to: begin + span }, 0, now()), 1, 0, now()));
  };
  const up = (event) => {
    const { fingers } = state.current;
    if (!fingers.delete(event.pointerId)) return;
    grab();
    if (!fingers.size && state.current.dragged) rest();
  };
  const click = (event) => {
    if (!state.current.dragged) return;
    state.current.dragged = false;
    event.preventDefault();
    event.stopPropagation();
  };
  const wheel = useRef(null);
  wheel.current = (event) => {
    const sideways = event.shiftKey ? event.deltaX || event.deltaY : event.deltaX;
    if (!event.ctrlKey && !event.metaKey && !sideways) return;
    event.preventDefault();
    const { left, width } = plot();
    const at = Math.min(1, Math.max(0, (event.clientX - left) / width));
    show(sideways && !event.ctrlKey ? moved(state.current.shown, sideways / width, now()) : zoomed(state.current.shown, Math.exp(event.deltaY * NOTCH), at, now()));
    clearTimeout(state.current.timer);
    state.current.timer = setTimeout(rest, REST_MS);
  };
  useEffect(() => {
    const turned = (event) => wheel.current(event);
    const { current } = box;
    current.addEventListener("wheel", turned, { passive: false });
    return () => {
      clearTimeout(state.current.timer);
      current.removeEventListener("wheel", turned);
    };
  }, []);
  return [shown, { onPointerDown: down, onPointerMove: move, onPointerUp: up, onPointerCancel: up, onClickCapture: click }];
}
