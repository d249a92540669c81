// The notifiers page: shows the deliveries and errors of each configured notifier, and sends test messages.
import { html, useState } from "../../vendor/preact.js";
import { attempt } from "../actions.js";
import { get, post } from "../api.js";
import { count, number } from "../format.js";
import { Ago, Badge, Card, Empty, Head, NotPermitted, Unloaded, useLoad, useTitle } from "../parts/basics.js";
import { toast } from "../parts/toasts.js";
import { link } from "../routes.js";
import { isAdmin, isLimited, now } from "../state.js";

const LOOK_MS = 5000;
const NEVER = { tone: "mute", word: "not used yet", icon: "clock" };
const WELL = { tone: "good", word: "ok", icon: "check" };
const FAILS = { tone: "bad", word: "failing", icon: "cross" };
const WAITS = { tone: "busy", word: "sending", icon: "clock" };

function look(one) {
  const failing = one.failedAt !== undefined && !(one.deliveredAt > one.failedAt);
  if (failing) return FAILS;
  if (one.waiting) return WAITS;
  return one.deliveredAt ? WELL : NEVER;
}

export function Notifiers() {
  useTitle("Notifiers");
  const turn = Math.floor(now.value / LOOK_MS);
  const { data, error, reload } = useLoad(async (signal) => (isLimited.value ? null : get("api/notifiers", {}, signal)), [turn]);
  if (isLimited.value) return html`<${NotPermitted} title="Notifiers">Your token is limited to some tasks and cannot see notifiers.</${NotPermitted}>`;
  return html`<${Head} title="Notifiers" above=${[["Notifications", link("notifications")]]} /><${Card} label="Notifiers">
    ${!data && html`<${Unloaded} error=${error} retry=${reload} />`}
    ${data && !data.items.length && html`<${None} />`}
    ${data?.items.length > 0 &&
    html`<div class="scroll-x"><table class="notifiers">
      <thead><tr><th>Name</th><th>State</th><th>Last delivered</th><th>Last failed</th><th class="number">Waiting</th><th class="number">Dropped</th><th><span class="hidden-text">Actions</span></th></tr></thead>
      <tbody>${data.items.map((one) => html`<${Row} key=${one.name} one=${one} changed=${reload} />`)}</tbody>
    </table></div>`}
  </${Card}>`;
}

function None() {
  return html`<${Empty}>
    <p><b>No notifiers yet.</b> To get messages outside the dashboard, add a notifier and a route:</p>
    <pre class="mono sample">[notifiers.ops]${"\n"}url = "mailtos://user:password@smtp.example.com?to=ops@example.com"${"\n\n"}[[routes]]${"\n"}notify = "ops"</pre>
    <a class="button" href=${link("daemon")}>Show configuration path</a>
  </${Empty}>`;
}

function Row({ one, changed }) {
  const [busy, setBusy] = useState(false);
  const may = isAdmin.value;
  const test = async () => {
    setBusy(true);
    const result = await attempt(() => post(`api/notifiers/${encodeURIComponent(one.name)}/test`));
    setBusy(false);
    changed();
    if (result?.delivered) toast(`${one.name} delivered the message`);
    else if (result) toast(`${one.name}: ${result.error}`, { bad: true });
  };
  return html`<tr>
    <td><b>${one.name}</b>${one.error && html`<p class="problem small">${one.error}</p>`}</td>
    <td><${Badge} look=${look(one)} /></td>
    <td>${one.deliveredAt ? html`<${Ago} at=${one.deliveredAt} />` : "never"}</td>
    <td>${one.failedAt ? html`<${Ago} at=${one.failedAt} />` : "never"}</td>
    <td class="number" title=${count(one.waiting, "message")}>${number(one.waiting)}</td>
    <td class="number">${number(one.givenUp)}</td>
    <td class="actions"><button disabled=${!may || busy} title=${may ? undefined : "Only admins can send test messages"} onClick=${test}>${busy ? "Sending …" : "Send test message"}</button></td>
  </tr>`;
}
