// The accounts page: lists user accounts, creates and removes them, and changes their passwords.
import { html, useState } from "../../vendor/preact.js";
import { attempt } from "../actions.js";
import { Refused, get, post, remove } from "../api.js";
import { Ago, Card, Empty, Head, NotPermitted, Unloaded, useLoad, useTitle } from "../parts/basics.js";
import { close, confirm, show } from "../parts/dialog.js";
import { toast } from "../parts/toasts.js";
import { isAdmin } from "../state.js";

const ROLES = [
  ["viewer", "reads"],
  ["operator", "also trigger, stop, delete"],
  ["admin", "everything, including accounts"],
];

export function Accounts() {
  useTitle("Accounts");
  const { data, error, reload } = useLoad(async (signal) => (isAdmin.value ? get("api/users", {}, signal) : null), []);
  if (!isAdmin.value) return html`<${NotPermitted} title="Accounts">Only admins can see accounts.</${NotPermitted}>`;
  const drop = async (one) => {
    const sure = await confirm({ title: `Remove ${one.name}?`, text: "The person is logged out at once.", label: "Remove" });
    if (!sure) return;
    await attempt(() => remove(`api/users/${encodeURIComponent(one.name)}`));
    reload();
  };
  const add = () => show(() => html`<${NewAccount} made=${reload} />`, { label: "New account" });
  const change = (one) => show(() => html`<${NewPassword} name=${one.name} made=${reload} />`, { label: `New password of ${one.name}` });
  return html`<${Head} title="Accounts" tools=${html`<button class="primary" onClick=${add}>New account</button>`} /><${Card} label="Accounts">
    ${!data && html`<${Unloaded} error=${error} retry=${reload} />`}
    ${data && !data.items.length && html`<${Empty}>Only the account admin exists; it has the daemon's own password.</${Empty}>`}
    ${data?.items.length > 0 &&
    html`<div class="scroll-x"><table>
      <thead><tr><th>Name</th><th>Role</th><th>Tasks</th><th>Created</th><th>Password changed</th><th><span class="hidden-text">Actions</span></th></tr></thead>
      <tbody>${data.items.map((one) => html`<tr key=${one.name}>
        <td><b>${one.name}</b></td><td>${one.role}</td><td class="mono">${one.tasks ?? "all"}</td>
        <td><${Ago} at=${one.createdAt} /><span class="soft"> by ${one.createdBy}</span></td>
        <td><${Ago} at=${one.passwordChangedAt} /></td>
        <td class="actions"><button onClick=${() => change(one)}>Change password</button> <button class="danger" onClick=${() => drop(one)}>Remove</button></td>
      </tr>`)}</tbody>
    </table></div>`}
  </${Card}>`;
}

/**
 * A form in a dialog. Submitting it awaits `send(formData)`, closes the dialog and shows the toast `done`. If the API
 * rejects the request, the dialog stays open and shows the error.
 */
function Form({ title, label, done, send, children }) {
  const [problem, setProblem] = useState(null);
  const submit = async (event) => {
    event.preventDefault();
    try {
      await send(new FormData(event.target));
      close();
      toast(done);
    } catch (error) {
      if (!(error instanceof Refused)) throw error;
      setProblem(error.message);
    }
  };
  return html`<form onSubmit=${submit}>
    <h2>${title}</h2>
    ${children}
    ${problem && html`<p class="problem" role="alert">${problem}</p>`}
    <div class="buttons"><button type="button" onClick=${close}>Cancel</button><button class="primary">${label}</button></div>
  </form>`;
}

const Password = () =>
  html`<div class="field"><label for="account-password">Password</label><input id="account-password" name="password" type="password" required minlength="8" maxlength="1000" autocomplete="new-password" /><small>At least 8 characters</small></div>`;

function NewAccount({ made }) {
  const send = async (data) => {
    const body = { name: data.get("name"), role: data.get("role"), password: data.get("password") };
    if (data.get("tasks")) body.tasks = data.get("tasks");
    await post("api/users", body);
    made();
  };
  return html`<${Form} title="New account" label="Create account" done="Account created" send=${send}>
    <div class="field"><label for="account-name">Name</label><input id="account-name" name="name" required maxlength="100" pattern="[a-zA-Z0-9._@\\-]+" autocomplete="off" autofocus /><small>Letters, digits and . _ @ -</small></div>
    <${Password} />
    <div class="field"><label for="account-role">Role</label><select id="account-role" name="role">${ROLES.map(([role, text]) => html`<option value=${role}>${role}: ${text}</option>`)}</select></div>
    <div class="field"><label for="account-tasks">Tasks (optional)</label><input id="account-tasks" name="tasks" placeholder="all" autocomplete="off" /><small>A pattern such as backup-*</small></div>
  </${Form}>`;
}

function NewPassword({ name, made }) {
  const send = async (data) => {
    await post(`api/users/${encodeURIComponent(name)}/password`, { password: data.get("password") });
    made();
  };
  return html`<${Form} title=${`New password of ${name}`} label="Change password" done="Password changed" send=${send}>
    <input class="hidden-text" type="text" name="username" value=${name} autocomplete="username" tabindex="-1" aria-hidden="true" readonly />
    <${Password} />
  </${Form}>`;
}
