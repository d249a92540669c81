// The runs page: a table of the runs of all units.
import { html } from "../../vendor/preact.js";
import { useTitle } from "../parts/basics.js";
import { RunsTable } from "../runs/runs_table.js";

export function Runs() {
  useTitle("Runs");
  return html`<${RunsTable} page=${["runs"]} />`;
}
