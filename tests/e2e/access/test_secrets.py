"""Secrets, through the real daemon: only the command gets them."""

import json

from tests.support.daemon import Daemon

SECRET = "correct-horse-42"


def test_secret_is_masked_everywhere(daemon: Daemon) -> None:
    """A secret is in no log, answer, event, file or shared memory; a mask shows where it was."""
    (daemon.config.parent / "token").write_text(SECRET + "\n")
    command = (
        "echo got $TOKEN; printf 'pass: corr'; sleep 0.1; echo 'ect-horse-42!'; echo $TOKEN >&2; "
        "printf 'xxxxxxx-horse-42\\rcorrect\\n'"
    )
    daemon.write(f"""[tasks.login]\nrun = {json.dumps(command)}\nsecrets = {{ TOKEN = "${{file:token}}" }}\n""")
    daemon.start()
    run = daemon.ended(daemon.trigger("login"))
    assert daemon.texts(run["id"]) == ["got ***", "pass: ***!", "***"]
    assert daemon.texts(run["id"], "stderr") == ["***"]
    assert daemon.texts(run["id"], "system") == ["masked secrets: 3"]
    shown = [daemon.get(path).body for path in ("/api/tasks", "/api/tasks/login", f"/api/runs/{run['id']}/log/raw")]
    assert not any(SECRET.encode() in body for body in shown)
    assert daemon.stop() == 0
    assert {*daemon.holding(SECRET)} <= {"config.last"}
    assert SECRET not in daemon.output.read_text()
