"""Notifications by mail and webhook, through the real daemon, the real notifier process and real servers."""

import json
from collections.abc import Iterator
from typing import Any

import psutil
import pytest

from tests.support.daemon import Daemon
from tests.support.ports import free_port
from tests.support.receivers import Mail, Web, mail_server, web_server
from tests.support.waiting import until

TASKS = """
[tasks.t]
run = "echo first; echo the last line; test -e good"
working_dir = "."
[tasks.quiet]
run = "true"
"""
SITE = "https://jobs.example.com/site"


@pytest.fixture
def web() -> Iterator[Web]:
    with web_server() as server:
        yield server


@pytest.fixture
def mail() -> Iterator[Mail]:
    with mail_server() as server:
        yield server


PATIENT = "rto=60&cto=60"
"""Otherwise Apprise gives up after 4 s, and the message is sent once more."""


def hook(port: int, path: str = "token-of-the-hook") -> str:
    return f'url = "json://127.0.0.1:{port}/{path}?{PATIENT}"'


def notifier(daemon: Daemon) -> psutil.Process | None:
    return next(iter(daemon.children("ringward notifier", of="ringward scheduler")), None)


def notifiers(daemon: Daemon) -> dict[str, dict[str, Any]]:
    """Return the state of each notifier by name, once the scheduler answers."""
    items: list[dict[str, Any]] = []

    def answered() -> bool:
        answer = daemon.get("/api/notifiers")
        if answer.status == 200:
            items.extend(answer.json()["items"])
        return answer.status == 200

    until(answered, "the scheduler to answer")
    return {item["name"]: item for item in items}


def test_failure_and_recovery(daemon: Daemon, web: Web, mail: Mail) -> None:
    """Mail and webhook receive the verdict, last lines and a link, then the recovery; success alone sends nothing."""
    daemon.write(
        f"""{TASKS}
[notifiers.mail]
url = "mailto://127.0.0.1:{mail.port}?from=ringward@example.com&to=ops@example.com&{PATIENT}"
[notifiers.hook]
{hook(web.port)}
[[routes]]
match = {{ kinds = ["run.failed"], tasks = "t*" }}
notify = ["mail", "hook"]
""",
        http=f'external_url = "{SITE}"',
    )
    daemon.start()
    daemon.ended(daemon.trigger("quiet"))
    assert notifier(daemon) is None
    failed = daemon.trigger("t")
    until(lambda: web.messages and mail.messages, "both messages")
    for title, text in (
        (web.messages[0]["title"], web.messages[0]["message"]),
        (mail.messages[0]["Subject"], mail.texts[0]),
    ):
        assert title == "t failed"
        assert "failed with exit code 1" in text
        assert text.index("first") < text.index("the last line") < text.index(f"{SITE}/#/run/{failed}")
    assert web.messages[0]["type"] == "failure"
    (daemon.directory / "good").touch()
    recovered = daemon.trigger("t")
    until(lambda: len(web.messages) == len(mail.messages) == 2, "both recoveries")
    assert (web.messages[1]["title"], web.messages[1]["type"]) == ("t has recovered", "success")
    assert recovered in mail.texts[1]
    daemon.ended(daemon.trigger("t"))
    until(lambda: not any(listed["waiting"] for listed in notifiers(daemon).values()), "all to be delivered")
    assert len(web.messages) == len(mail.messages) == 2
    known = notifiers(daemon)["hook"]
    assert (known["givenUp"], "deliveredAt" in known, "error" in known) == (0, True, False)
    outputs = daemon.output.read_text() + daemon.get("/api/notifiers").body.decode()
    child = notifier(daemon)
    assert child is not None
    assert "token-of-the-hook" not in outputs + " ".join(child.cmdline()) + daemon.get("/api/tasks").body.decode()


def test_address_that_changes_during_an_attempt(daemon: Daemon, web: Web) -> None:
    """A message goes to the new address at once, even if the former one then asks for an hour of patience."""
    routes = '[[routes]]\nnotify = "hook"\nmatch = { tasks = "*" }\n'
    web.hold.clear()
    web.respond = lambda _number: (503, {"Retry-After": "3600"})
    daemon.write(f"{TASKS}\n[notifiers.hook]\n{hook(web.port)}\n{routes}")
    daemon.start()
    daemon.trigger("t")
    until(lambda: web.requests, "the attempt")
    with web_server() as successor:
        text = daemon.config.read_text()
        daemon.config.write_text(text.replace(f":{web.port}/", f":{successor.port}/"))
        assert daemon.request("POST", "/api/daemon/reload").status == 200
        web.hold.set()
        until(lambda: successor.messages, "the message")
    assert [message["title"] for message in successor.messages] == ["t failed"]


def test_unreachable_receiver_is_retried(daemon: Daemon) -> None:
    """A message for an unreachable receiver waits, even across a restart of the daemon, and is delivered later."""
    port = free_port()
    daemon.write(f'{TASKS}\n[notifiers.hook]\n{hook(port)}\n[[routes]]\nnotify = "hook"\nmatch = {{ tasks = "*" }}\n')
    daemon.start()
    failed = daemon.trigger("t")
    until(lambda: "error" in notifiers(daemon)["hook"], "an attempt that fails")
    (known,) = notifiers(daemon).values()
    assert (known["waiting"], "deliveredAt" in known) == (1, False)
    assert "token-of-the-hook" not in json.dumps(known) + daemon.output.read_text()
    assert daemon.ended(failed)["endReason"] == "failed"
    assert daemon.stop() == 0
    with web_server(port) as web:
        daemon.start()
        until(lambda: web.messages, "the message")
        assert "the last line" in web.messages[0]["message"]
        until(lambda: notifiers(daemon)["hook"]["waiting"] == 0, "it to be off the list")
        assert len(web.messages) == 1


@pytest.mark.lent
@pytest.mark.parametrize("victim", ["notifier", "scheduler"])
def test_killed_delivery_is_repeated_once(daemon: Daemon, web: Web, victim: str) -> None:
    """A message whose delivery was interrupted by a kill on either side is sent once more, and no other message is."""
    daemon.write(f'[tasks.t]\nrun = "false"\nnotify_on_failure = "hook"\n[notifiers.hook]\n{hook(web.port)}\n')
    daemon.start()
    web.hold.clear()
    daemon.trigger("t")
    until(lambda: web.messages, "the first attempt")
    process = notifier(daemon) if victim == "notifier" else daemon.helper("ringward scheduler")
    assert process is not None
    process.kill()
    until(lambda: len(web.messages) == 2, "the second attempt")
    web.hold.set()
    until(
        lambda: daemon.get("/readyz").status == 200 and notifiers(daemon)["hook"]["waiting"] == 0, "it to be delivered"
    )
    assert [message["title"] for message in web.messages] == ["t failed", "t failed"]


@pytest.mark.lent
def test_notify_test(daemon: Daemon, web: Web) -> None:
    """``notify test`` waits for the result: 0 delivered, 1 refused with the reason, or unknown."""
    port = free_port()
    daemon.write(f"[notifiers.hook]\n{hook(web.port)}\n[notifiers.dead]\n{hook(port)}\n")
    daemon.start()
    done = daemon.cli("notify", "test", "hook")
    assert (done.returncode, done.stdout) == (0, "hook delivered the message\n"), done.stderr
    assert "test" in web.messages[0]["title"]
    assert daemon.cli("notify", "test", "hook", "--long").returncode == 0
    assert "Line 20 of 20: xxx" in web.messages[1]["message"]
    done = daemon.cli("notify", "test", "dead")
    assert done.returncode == 1
    assert "dead could not deliver the message" in done.stderr
    assert "token-of-the-hook" not in done.stderr
    done = daemon.cli("notify", "test", "nobody")
    assert (done.returncode, 'No notifier named "nobody"' in done.stderr) == (1, True)


def test_heartbeat_urls(daemon: Daemon, web: Web) -> None:
    """A task's URL receives start, success and failure, the daemon's its liveness; neither URL is shown anywhere."""
    url = f"http://127.0.0.1:{web.port}/secret-of-the-ping"
    daemon.write(
        f'[tasks.good]\nrun = "true"\nheartbeat = "{url}/good"\n[tasks.bad]\nrun = "false"\nheartbeat = "{url}/bad"\n',
        daemon=f'heartbeat = "{url}/daemon"',
    )
    daemon.start()
    until(lambda: "/secret-of-the-ping/daemon" in web.paths, "the daemon's own")
    daemon.trigger("good")
    daemon.trigger("bad")
    expected = {"good/start", "good", "bad/start", "bad/fail", "daemon"}
    until(lambda: set(web.paths) == {f"/secret-of-the-ping/{path}" for path in expected}, "all of them")
    assert "secret-of-the-ping" not in daemon.output.read_text() + daemon.get("/api/tasks").body.decode()


@pytest.mark.lent
def test_repeated_start_never_follows_the_end(daemon: Daemon, web: Web) -> None:
    """A start that is sent again never arrives after its end, where it would look like a hung run."""
    url = f"http://127.0.0.1:{web.port}/ping"
    daemon.write(f'[tasks.good]\nrun = "true"\nheartbeat = "{url}"\n')
    daemon.start()
    web.respond = lambda number: (500 if number == 0 else 200, {})
    daemon.trigger("good")
    until(lambda: len(web.paths) == 3, "all of them")
    assert web.paths == ["/ping/start", "/ping/start", "/ping"]


def test_slow_and_silent_runs_are_notified(daemon: Daemon, web: Web) -> None:
    """A run that takes long or prints nothing is notified while it runs."""
    daemon.write(
        f"""[tasks.t]
run = "echo once; exec sleep 1000"
max_duration_alert = "1ms"
silence_alert = "6s"
notify_on_failure = "hook"
[services.s]
run = "exec sleep 1000"
max_duration_alert = "1ms"
silence_alert = "1s"
[notifiers.hook]
{hook(web.port)}
"""
    )
    daemon.start()
    run_id = daemon.trigger("t")
    until(lambda: len(web.messages) == 2, "both")
    assert [message["title"] for message in web.messages] == ["t is taking too long", "t is silent"]
    assert "once" in web.messages[1]["message"]
    assert daemon.run(run_id)["status"] == "running"

    def listed() -> set[tuple[str, str]]:
        items = daemon.get("/api/notifications").json()["items"]
        return {(item["kind"], item["taskName"]) for item in items if item["kind"] in ("run.slow", "run.silent")}

    expected = {(kind, name) for kind in ("run.slow", "run.silent") for name in "ts"}
    until(lambda: listed() == expected, "the service")


@pytest.mark.lent
def test_late_task_is_notified(daemon: Daemon) -> None:
    """A task whose work is not done by its deadline is late everywhere, and names the run that is active."""
    daemon.write('[tasks.t]\ncron = "* * * * * *"\nfinish_by = "+1s"\nrun = "exec sleep 1000"\n')
    daemon.start()
    late = until(lambda: daemon.get("/api/tasks/t").json().get("lateSince"), "the deadline")
    items = daemon.get("/api/notifications").json()["items"]
    (report,) = [item for item in items if item["kind"] == "task.late"]
    (run,) = daemon.get("/api/tasks/t/runs?status=running").json()["items"]
    assert f"Run {run['id']} is active." in report["body"]
    assert daemon.get(f"/api/runs/{run['id']}/details").json()["doneBy"] <= late
    assert "doneBy" in daemon.get("/api/tasks/t/schedule").json()["items"][0]
    assert "late (due" in daemon.cli("ps").stdout


@pytest.mark.lent
def test_success_of_a_service_is_notified_on_request(daemon: Daemon, web: Web) -> None:
    """A successful end of a service is notified if a route asks for it."""
    daemon.write(
        f"""[services.s]
run = "echo well; exit 3"
exit_codes = [3]
restart = "never"
autostart = false
notify_on_success = "hook"
notify_on_missed = "hook"
[services.asked]
run = "exec sleep 1000"
notify_on_success = "hook"
[notifiers.hook]
{hook(web.port)}
"""
    )
    daemon.start()
    until(lambda: [run["status"] for run in daemon.runs("asked")] == ["running"], "the other service")
    assert daemon.cli("stop", "asked").returncode == 0
    assert daemon.cli("start", "s").returncode == 0
    until(lambda: web.messages, "the message")
    assert [message["title"] for message in web.messages] == ["s succeeded"]
    assert "well" in web.messages[0]["message"]


def test_digest_is_one_message(daemon: Daemon, web: Web) -> None:
    """With a digest, all notifications within its time are one message with a line each."""
    daemon.write(
        f"""[tasks.a]
run = "until test -e a.ends; do sleep 0.02; done; false"
working_dir = "."
[tasks.b]
run = "until test -e b.ends; do sleep 0.02; done; false"
working_dir = "."
[notify]
digest = "2s"
[notifiers.hook]
{hook(web.port)}
[[routes]]
notify = "hook"
""",
        http=f'external_url = "{SITE}"',
    )
    daemon.start()
    first, second = daemon.trigger("a"), daemon.trigger("b")
    until(lambda: daemon.children("a.ends") and daemon.children("b.ends"), "both to run")
    scheduler = daemon.helper("ringward scheduler")
    scheduler.suspend()  # it sees both ends at the same time
    for name in ("a.ends", "b.ends"):
        (process,) = daemon.children(name)
        (daemon.directory / name).touch()
        until(lambda process=process: not process.is_running(), "its end to be told")  # type: ignore[misc]
    scheduler.resume()
    until(lambda: web.messages, "the message")
    (message,) = web.messages
    assert message["title"] == "2 notifications"
    lines = message["message"].split("\n")
    assert [line.split(" ", 2)[2] for line in lines[:2]] == [
        f"a failed {SITE}/#/run/{first}",
        f"b failed {SITE}/#/run/{second}",
    ]


@pytest.mark.lent
def test_failure_count_survives_restarts(daemon: Daemon, web: Web) -> None:
    """A route's count of consecutive failures survives a restart of the scheduler."""
    daemon.write(
        f"""[tasks.counted]
run = "false"
[notifiers.hook]
{hook(web.port)}
[[routes]]
after = 3
notify = "hook"
"""
    )
    daemon.start()
    daemon.ended(daemon.trigger("counted"))
    daemon.ended(daemon.trigger("counted"))
    daemon.kill_helper("ringward scheduler")
    daemon.trigger("counted")
    until(lambda: web.messages, "the message")
    (message,) = web.messages
    assert daemon.runs("counted")[2]["id"] in message["message"]


@pytest.mark.lent
def test_reload_replaces_notifiers(daemon: Daemon, web: Web) -> None:
    """A reload replaces a notifier at once, so that waiting messages use its new address, and removes a deleted one."""
    old, new = hook(web.port, "old"), hook(web.port, "new")
    daemon.write(f'[tasks.t]\nrun = "false"\n[notifiers.hook]\n{old}\n[[routes]]\nnotify = "hook"\n')
    web.respond = lambda _number: (503, {"Retry-After": "3600"})
    daemon.start()
    daemon.trigger("t")
    until(lambda: "error" in notifiers(daemon)["hook"], "an attempt that fails")
    web.respond = lambda _number: (200, {})
    text = daemon.config.read_text()
    daemon.config.write_text(text.replace(text[text.index("[notifiers") :], f"[notifiers.hook]\n{new}\n"))
    answer = daemon.request("POST", "/api/daemon/reload")
    assert {"name": "[notifiers]", "reasons": ["notifiers: applies at once"]} in answer.json()["changed"]
    until(lambda: "/new" in {path.partition("?")[0] for path in web.paths}, "the message by the new address")
    assert {message["title"] for message in web.messages} == {"t failed"}
    until(lambda: not notifiers(daemon)["hook"]["waiting"], "the delivery to be stored")
    daemon.config.write_text(text[: text.index("[notifiers")])
    assert daemon.request("POST", "/api/daemon/reload").status == 200
    assert notifiers(daemon) == {}


def test_unclean_end_is_notified(daemon: Daemon) -> None:
    """The next daemon notifies whether the last one was shut down: a warning after a kill, else information."""
    daemon.write("")
    daemon.start()
    assert daemon.get("/api/notifications").json()["items"] == []
    assert daemon.process is not None
    daemon.process.kill()
    daemon.process.wait()
    for severity in ("warn", "info"):
        daemon.start()
        (notification,) = daemon.get("/api/notifications").json()["items"]
        assert (notification["kind"], notification["severity"]) == ("daemon.restarted", severity)
        assert daemon.stop() == 0
