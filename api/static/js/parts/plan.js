// A card that previews the changes of a configuration reload, and applies them.
import { html, useEffect, useState } from "../../vendor/preact.js";
import { Refused, post } from "../api.js";
import { loadDaemon, loadUnits } from "../state.js";
import { Card, Empty } from "./basics.js";
import { toast } from "./toasts.js";

export function Plan({ open }) {
  const [plan, setPlan] = useState(null);
  const [problem, setProblem] = useState(null);
  const ask = async (query) => {
    setProblem(null);
    try {
      return await post("api/daemon/reload", undefined, query);
    } catch (error) {
      if (!(error instanceof Refused)) throw error;
      setPlan(null);
      setProblem(error);
      return null;
    }
  };
  const look = async () => setPlan(await ask({ dry_run: true }));
  const apply = async () => {
    const done = await ask();
    if (!done) return;
    setPlan(null);
    toast("Configuration is up to date");
    loadDaemon();
    loadUnits();
  };
  useEffect(() => {
    if (open) look();
  }, [open]);
  const tools = html`<button onClick=${look}>Preview reload</button>
    ${plan && html`<button class="primary" onClick=${apply}>Reload</button>`}`;
  const same = plan && !plan.added.length && !plan.changed.length && !plan.removed.length;
  return html`<${Card} title="Configuration" tools=${tools}>
    ${problem && html`<div class="body"><p class="problem" role="alert">${problem.errors.length ? "The file is invalid; nothing has changed:" : problem.message}</p>
      <ul class="plan">${problem.errors.map((one) => html`<li>${place(one)}${one.message}${one.value?.remedy ? ` (${one.value.remedy})` : ""}</li>`)}</ul></div>`}
    ${same && html`<${Empty}>No changes to apply.</${Empty}>`}
    ${plan &&
    !same &&
    html`<div class="body"><ul class="plan">
      ${plan.added.map((name) => html`<li><b>${name}</b> is added</li>`)}
      ${plan.changed.map((one) => html`<li><b>${one.name}</b><ul>${one.reasons.map((reason) => html`<li class="soft">${reason}</li>`)}</ul></li>`)}
      ${plan.removed.map((name) => html`<li><b>${name}</b> is removed</li>`)}
      ${plan.warnings.map((text) => html`<li class="soft">${text}</li>`)}
    </ul></div>`}
  </${Card}>`;
}

function place(one) {
  const { file, line, key } = one.value ?? {};
  const at = [file && `${file}${line ? `:${line}` : ""}`, key].filter(Boolean).join(", ");
  return at ? html`<span class="mono">${at}</span>: ` : "";
}
