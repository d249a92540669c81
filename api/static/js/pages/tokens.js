// The tokens page: lists API tokens with their roles, creates and revokes them.
import { html, useState } from "../../vendor/preact.js";
import { attempt } from "../actions.js";
import { Refused, get, post, remove } from "../api.js";
import { Ago, At, Badge, Card, Empty, Head, NotPermitted, Unloaded, useLoad, useTitle } from "../parts/basics.js";
import { close, confirm, show } from "../parts/dialog.js";
import { toast } from "../parts/toasts.js";
import { isAdmin } from "../state.js";

const DAY_MS = 86_400_000;
const ROLES = [
  ["viewer", "reads"],
  ["operator", "also trigger, stop, delete"],
  ["admin", "everything, including tokens"],
  ["cloud", "an operator from a remote control plane"],
];

export function Tokens() {
  useTitle("Tokens");
  const { data, error, reload } = useLoad(async (signal) => (isAdmin.value ? get("api/tokens", {}, signal) : null), []);
  if (!isAdmin.value) return html`<${NotPermitted} title="Tokens">Only admins can see tokens.</${NotPermitted}>`;
  const revoke = async (one) => {
    const sure = await confirm({ title: `Revoke ${one.name}?`, text: "Clients that use it lose access at once.", label: "Revoke" });
    if (!sure) return;
    await attempt(() => remove(`api/tokens/${encodeURIComponent(one.name)}`));
    reload();
  };
  const make = () => show(() => html`<${NewToken} made=${reload} />`, { label: "New token" });
  return html`<${Head} title="Tokens" tools=${html`<button class="primary" onClick=${make}>New token</button>`} /><${Card} label="Tokens">
    ${!data && html`<${Unloaded} error=${error} retry=${reload} />`}
    ${data && !data.items.length && html`<${Empty}>No tokens yet. Create one for scripts and CI.</${Empty}>`}
    ${data?.items.length > 0 &&
    html`<div class="scroll-x"><table>
      <thead><tr><th>Name</th><th>Role</th><th>Tasks</th><th>Made</th><th>Last used</th><th>Ends</th><th><span class="hidden-text">Actions</span></th></tr></thead>
      <tbody>${data.items.map((one) => html`<tr key=${one.name}>
        <td><b>${one.name}</b></td><td>${one.role}</td><td class="mono">${one.tasks ?? "all"}</td>
        <td><${Ago} at=${one.createdAt} /><span class="soft"> by ${one.createdBy}</span></td>
        <td>${one.lastUsedAt ? html`<${Ago} at=${one.lastUsedAt} />` : "never"}</td>
        <td>${one.expired ? html`<${Badge} look=${{ tone: "bad", word: "expired", icon: "cross" }} />` : one.expiresAt ? html`<${At} at=${one.expiresAt} />` : "never"}</td>
        <td class="actions"><button class="danger" onClick=${() => revoke(one)}>Revoke</button></td>
      </tr>`)}</tbody>
    </table></div>`}
  </${Card}>`;
}

function NewToken({ made }) {
  const [token, setToken] = useState(null);
  const [problem, setProblem] = useState(null);
  const submit = async (event) => {
    event.preventDefault();
    const data = new FormData(event.target);
    const body = { name: data.get("name"), role: data.get("role") };
    if (data.get("tasks")) body.tasks = data.get("tasks");
    if (data.get("days")) body.expiresInMs = Number(data.get("days")) * DAY_MS;
    try {
      setToken((await post("api/tokens", body)).token);
      made();
    } catch (error) {
      if (!(error instanceof Refused)) throw error;
      setProblem(error.message);
    }
  };
  if (token) {
    const copy = () => navigator.clipboard?.writeText(token).then(() => toast("Copied"));
    return html`<div class="inside"><h2>Copy your token</h2>
      <p>You won't see it again:</p><p class="mono problem">${token}</p>
      <div class="buttons"><button onClick=${copy}>Copy</button><button class="primary" onClick=${close}>Done</button></div></div>`;
  }
  return html`<form onSubmit=${submit}>
    <h2>New token</h2>
    <div class="field"><label for="token-name">Name</label><input id="token-name" name="name" required maxlength="100" pattern="[a-zA-Z0-9._:\\-]+" autocomplete="off" autofocus /><small>Letters, digits and . _ : -</small></div>
    <div class="field"><label for="token-role">Role</label><select id="token-role" name="role">${ROLES.map(([role, text]) => html`<option value=${role}>${role}: ${text}</option>`)}</select></div>
    <div class="field"><label for="token-tasks">Tasks (optional)</label><input id="token-tasks" name="tasks" placeholder="all" autocomplete="off" /><small>A pattern such as backup-*</small></div>
    <div class="field"><label for="token-days">Expires after (days)</label><input id="token-days" name="days" type="number" min="1" max="3660" placeholder="never" /></div>
    ${problem && html`<p class="problem" role="alert">${problem}</p>`}
    <div class="buttons"><button type="button" onClick=${close}>Cancel</button><button class="primary">Create token</button></div>
  </form>`;
}
