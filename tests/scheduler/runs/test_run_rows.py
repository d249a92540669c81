from dataclasses import replace
from pathlib import Path

from supervisor.config.load import load
from supervisor.config.model import Service, Task
from supervisor.scheduler.runs.run_rows import POLICY, policy_of, with_policy
from tests.support.host_features import needs_re2

PLAIN = "[tasks.t]\nrun = 'true'\n[services.s]\nrun = 'true'\n"
OTHER = """
[tasks.t]
run = 'true'
stop_signal = [["SIGINT", "1s"], ["SIGTERM", "2s"]]
graceful_stop = "1h"
leftovers = "leave"
retry_attempts = 3
retry_delay = "7s"
retry_backoff = "linear"
retry_max_delay = "9m"
retry_on = ["timeout", 3]
exit_codes = [0, 7]
failure_output = "x"
min_duration = "30s"
too_short = "warn"
output_required = ["path"]
expected_duration = "learned"
max_duration_alert = "5m"
silence_alert = "6m"
uses = ["db"]
[services.s]
run = 'true'
ready = { http = "http://127.0.0.1:1/", timeout = "9s" }
live = { exec = ["a", "b"], failures = 7 }
[slots.db]
size = 1
"""


def units(directory: Path, text: str) -> tuple[Task, Service]:
    path = directory / "ringward.toml"
    path.write_text(text)
    path.chmod(0o600)
    config = load(str(path))
    return config.tasks["t"], config.services["s"]


@needs_re2
def test_round_trip(tmp_path: Path) -> None:
    """A policy restores a definition exactly, and the policy of a definition with defaults is empty."""
    plain, other = units(tmp_path, PLAIN), units(tmp_path, OTHER)
    pairs: list[tuple[Task | Service, Task | Service]] = [(plain[0], other[0]), (plain[1], other[1])]
    for usual, unusual in pairs:
        assert policy_of(usual) == {}
        assert with_policy(usual, {"terms": policy_of(unusual)}) == unusual
        assert with_policy(unusual, {"terms": policy_of(usual)}) == usual
        assert with_policy(replace(usual, run="false"), {"terms": policy_of(unusual)}) == replace(unusual, run="false")
    assert {*policy_of(other[0]), *policy_of(other[1])} == POLICY


@needs_re2
def test_unknown_policy_keys(tmp_path: Path) -> None:
    """Policy keys that a definition lacks, or values that it cannot read, are ignored."""
    task, service = units(tmp_path, OTHER)
    assert with_policy(task, {"terms": policy_of(service)}).exit_codes == (0,)
    assert with_policy(task, {"terms": {"retry_on": 5}}) == task
    assert with_policy(task, {"terms": {"unheard": 5}}).exit_codes == (0,)
