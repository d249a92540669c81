// Lists, triggers and reads a run by a client that was generated: client ADDRESS TOKEN.
package main

import (
	"context"
	"encoding/json"
	"os"

	"ringward"
)

func must[T any](value T, _ any, err error) T {
	if err != nil {
		panic(err)
	}
	return value
}

func main() {
	configuration := ringward.NewConfiguration()
	configuration.Servers = ringward.ServerConfigurations{{URL: os.Args[1]}}
	api := ringward.NewAPIClient(configuration).RunsAPI
	ctx := context.WithValue(context.Background(), ringward.ContextAccessToken, os.Args[2])

	before := must(api.ListRuns(ctx).Execute())
	triggered := must(api.RunTask(ctx, "job").Wait(60).Execute())
	run := must(api.GetRun(ctx, triggered.RunSnake.Id).Execute())
	all := must(api.ListRuns(ctx).Execute())
	camel := must(api.ListRuns(ctx).Naming("camel").Execute())
	ofTask := must(api.ListTaskRuns(ctx, "job").Execute())

	json.NewEncoder(os.Stdout).Encode(map[string]any{
		"before":    before.Total,
		"triggered": triggered.RunSnake.EndReason,
		"exact":     run.EndReason,
		"folded":    run.AdditionalProperties["end_reason"],
		"started":   !run.StartedAt.Before(run.CreatedAt),
		"listed": []any{
			all.Runs[0].RunSnake.EndReason, camel.Runs[0].RunCamel.EndReason, ofTask.Items[0].RunCamel.EndReason,
		},
	})
}
