// Desktop notifications for warnings and errors while the dashboard is open in a hidden tab. They are off by default;
// each browser stores its own setting.
import { html, signal } from "../../vendor/preact.js";
import { sentencesOf } from "../format.js";
import { listen } from "../live.js";
import { go, link } from "../routes.js";
import { notifying } from "../seen.js";
import { remember } from "../taste.js";
import { ICON } from "./icon.js";
import { toast } from "./toasts.js";

const supported = "Notification" in window && isSecureContext;
const permission = signal(supported ? Notification.permission : "denied");

function tell(notification) {
  if (!notifying.value || permission.value !== "granted" || !document.hidden || notification.severity === "info") return;
  // The tag identifies the notification, so that several open windows show it once.
  const shown = new Notification(notification.title, { body: sentencesOf(notification), tag: `ringward-${notification.id}`, icon: ICON });
  shown.onclick = () => {
    window.focus();
    go(notification.runId ? link("run", notification.runId) : link("notifications"));
    shown.close();
  };
}

if (supported) listen((kind, body) => kind === "notification.created" && tell(body.notification));

async function turn(on) {
  if (on) permission.value = await Notification.requestPermission();
  notifying.value = on && permission.value === "granted";
  remember("notify", notifying.value ? "yes" : "no");
  if (on && !notifying.value) toast("This browser blocks notifications of this site; allow them in its settings", { bad: true });
}

/**
 * The switch for desktop notifications; renders nothing where browsers forbid them: over plain HTTP from another host.
 */
export function NotifyHere() {
  if (!supported) return null;
  const on = notifying.value && permission.value === "granted";
  return html`<button aria-pressed=${on} title="Show warnings and errors as notifications of this browser" onClick=${() => turn(!on)}>Notify in this browser</button>`;
}
