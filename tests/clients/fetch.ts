// Lists, triggers and reads a run by a client that was generated: fetch.js ADDRESS TOKEN.
import { Configuration, ListRunsNamingEnum, RunsApi } from "./generated";
import type { RunCamel, RunSnake } from "./generated";

declare const process: { argv: string[] };

async function main(): Promise<void> {
  const [, , basePath, token] = process.argv;
  const api = new RunsApi(new Configuration({ basePath, accessToken: token }));

  const before = await api.listRuns({});
  const triggered = (await api.runTask({ taskName: "job", wait: 60 })) as RunSnake;
  const run = await api.getRun({ runId: triggered.id });
  const all = (await api.listRuns({})).runs ?? [];
  const camel = (await api.listRuns({ naming: ListRunsNamingEnum.Camel })).runs ?? [];
  const ofTask = (await api.listTaskRuns({ taskName: "job" })).items ?? [];

  console.log(JSON.stringify({
    before: before.total,
    triggered: triggered.endReason,
    exact: run.endReason,
    folded: run["end_reason"],
    started: run.startedAt !== undefined && run.startedAt >= run.createdAt,
    listed: [(all[0] as RunSnake).endReason, (camel[0] as RunCamel).endReason, (ofTask[0] as RunCamel).endReason],
  }));
}

main();
