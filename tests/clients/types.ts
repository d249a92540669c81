// Lists, triggers and reads a run with types that were generated: types.js ADDRESS TOKEN.
import type { components, paths } from "./schema";

declare const process: { argv: string[] };

type Schemas = components["schemas"];
type Answer<Operation> = Operation extends { responses: { 200: { content: { "application/json": infer Body } } } }
  ? Body
  : Operation extends { responses: { 201: { content: { "application/json": infer Body } } } }
    ? Body
    : never;

const [, , address, token] = process.argv;

async function ask<Operation>(method: string, path: string): Promise<Answer<Operation>> {
  const response = await fetch(address + path, { method, headers: { Authorization: `Bearer ${token}` } });
  if (!response.ok) throw new Error(`${path}: ${response.status}`);
  return response.json();
}

async function main(): Promise<void> {
  const before = await ask<paths["/api/runs"]["get"]>("GET", "/api/runs");
  const triggered = await ask<paths["/api/tasks/{taskName}/run"]["post"]>("POST", "/api/tasks/job/run?wait=60");
  const run = await ask<paths["/api/runs/{runId}"]["get"]>("GET", `/api/runs/${triggered.id}`);
  const all = await ask<paths["/api/runs"]["get"]>("GET", "/api/runs");
  const camel = await ask<paths["/api/runs"]["get"]>("GET", "/api/runs?naming=camel");
  const ofTask = await ask<paths["/api/tasks/{taskName}/runs"]["get"]>("GET", "/api/tasks/job/runs");

  console.log(JSON.stringify({
    before: before.total,
    triggered: (triggered as Schemas["RunSnake"]).end_reason,
    exact: run.endReason,
    folded: run["end_reason"],
    started: run.startedAt !== undefined && run.startedAt >= run.createdAt,
    listed: [
      (all.runs?.[0] as Schemas["RunSnake"]).end_reason,
      (camel.runs?.[0] as Schemas["RunCamel"]).endReason,
      (ofTask.items?.[0] as Schemas["RunCamel"]).endReason,
    ],
  }));
}

main();
