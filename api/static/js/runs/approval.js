// Approvals: the buttons of a run that waits for one, the form with a note, and the answer.
import { html } from "../../vendor/preact.js";
import { did } from "../actions.js";
import { post, runPath } from "../api.js";
import { Act } from "../parts/basics.js";
import { close, show } from "../parts/dialog.js";
import { Icon } from "../parts/icon.js";
import { mayOperate } from "../state.js";
import { person } from "../verdict.js";

const VERBS = {
  approve: { label: "Approve", done: "The run is approved", text: "It starts as soon as it has its places." },
  reject: { label: "Reject", done: "The run is rejected", text: "It is stopped, and the steps behind it do not begin." },
};
const ANSWERS = { approved: "Approved", rejected: "Rejected", approval_timeout: "Nobody approved it in time", withdrawn: "It was stopped before anybody approved it" };

/** What a run that waits for its approval waits for; undefined for another run. waits: `waitingFor` of its details. */
export const awaited = (waits) => waits?.find((one) => one.kind === "approval");

/** The buttons that answer whether a run may start. what: the name of the task or step. */
export function ApprovalButtons({ run, what }) {
  const may = mayOperate.value;
  const title = may ? undefined : "Your role is read-only";
  const button = (verb, kind, icon) => html`<${Act} class=${kind} disabled=${!may} title=${title} aria-label="${VERBS[verb].label} ${what}" run=${() => show(() => html`<${Form} run=${run} what=${what} verb=${verb} />`, { label: `${VERBS[verb].label} ${what}` })}><${Icon} name=${icon} />${VERBS[verb].label}</${Act}>`;
  return html`<span class="row approval">${button("approve", "primary", "check")}${button("reject", "danger", "cross")}</span>`;
}

function Form({ run, what, verb }) {
  const { label, done, text } = VERBS[verb];
  const submit = (event) => {
    event.preventDefault();
    const note = new FormData(event.target).get("note").trim() || undefined;
    close();
    return did(done, () => post(runPath(run.id, verb), { note }));
  };
  return html`<form onSubmit=${submit}>
    <h2>${label} ${what}?</h2>
    <p>${text} The record has your name.</p>
    <div class="field"><label for="approval-note">Note</label><input id="approval-note" name="note" maxlength="1000" autocomplete="off" autofocus /></div>
    <div class="buttons"><button type="button" onClick=${close}>Cancel</button><button class=${verb === "approve" ? "primary" : "danger"}>${label}</button></div>
  </form>`;
}

/** Say how an approval was answered. */
export function answered(approval) {
  const by = approval.by ? ` by ${person(approval.by)}` : "";
  return `${ANSWERS[approval.answer]}${by}${approval.note ? `: ${approval.note}` : ""}`;
}
