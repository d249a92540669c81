// The login page. Password managers expect a user name field and a current-password field, so the form has both.
import { html, useState } from "../../vendor/preact.js";
import { Refused, post } from "../api.js";
import { useTitle } from "../parts/basics.js";
import { ICON } from "../parts/icon.js";
import { me } from "../state.js";

export function Login({ entered }) {
  useTitle("Log in");
  const [problem, setProblem] = useState(null);
  const [busy, setBusy] = useState(false);
  const submit = async (event) => {
    event.preventDefault();
    setBusy(true);
    setProblem(null);
    try {
      await post("api/auth/login", Object.fromEntries(new FormData(event.target)));
      await entered();
      if (me.value.authenticated) return;
      setProblem("The password is correct, but the browser did not return the session cookie. It may block cookies, or base_path does not match this address.");
      setBusy(false);
    } catch (error) {
      if (!(error instanceof Refused)) throw error;
      setProblem(error.status === 401 ? "Wrong user name or password." : error.message);
      setBusy(false);
    }
  };
  return html`<main class="login"><form method="post" action="api/auth/login" onSubmit=${submit}>
    <h1><img src=${ICON} alt="" />Ringward</h1>
    ${me.value.expired && html`<p role="status">Your session has ended. Log in to continue${me.value.waiting ? "; your last action is then carried out" : ""}.</p>`}
    <label>User name (optional)<input type="text" name="username" autocomplete="username" placeholder="admin" autocapitalize="none" spellcheck="false" /></label>
    <label>Password or token<input type="password" name="password" autocomplete="current-password" required autofocus /></label>
    ${problem && html`<p class="problem" role="alert">${problem}</p>`}
    <button class="primary" disabled=${busy}>Log in</button>
    <p class="hint">On the server, <code>ringward password</code> shows the password of admin.</p>
  </form></main>`;
}
