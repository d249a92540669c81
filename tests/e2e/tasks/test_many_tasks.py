"""Commands on several tasks, and on runs by parts of their ids, through the real daemon."""

import contextlib
import os
import re
import signal
import subprocess
import tty
from pathlib import Path

import pytest

from tests.support.daemon import Daemon
from tests.support.waiting import until

pytestmark = pytest.mark.lent

CONFIG = """
[tasks.export-a]
run = "echo from a"
group = "shop"
tags = ["nightly"]
cron = "0 4 1 1 *"
[tasks.export-b]
run = "echo from b; exit 3"
group = "shop"
[tasks.by-schedule]
run = "true"
cron = "0 5 1 1 *"
api_trigger = false
group = "shop"
[tasks.other]
run = "true"
[tasks.waits]
run = "sleep 600"
[services.web]
run = "sleep 600"
group = "shop"
autostart = false
instances = 2
"""


@pytest.fixture
def shop(daemon: Daemon) -> Daemon:
    daemon.write(CONFIG)
    daemon.start()
    return daemon


def count(daemon: Daemon) -> int:
    total: int = daemon.get("/api/runs?limit=1").json()["total"]
    return total


def column(text: str, number: int = 0) -> list[str]:
    return [line.split("\t")[number] for line in text.splitlines()[1:]]


def test_run_many_tasks(shop: Daemon) -> None:
    """Each line begins with its task, and the exit code is 1 unless all succeed; globs skip units that cannot run."""
    done = shop.cli("run", "export-*", "other")
    assert sorted(done.stdout.splitlines()) == ["export-a | from a", "export-b | from b"]
    assert done.returncode == 1
    assert re.search(r"export-b: run \S+ exited with code 3", done.stderr)
    assert shop.cli("run", "export-a", "other").returncode == 0
    started = shop.cli("run", "-d", "--group", "shop").stdout.split()
    assert sorted(shop.ended(run)["taskName"] for run in started) == ["export-a", "export-b"]


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        (("run", "export-a", "exprot-b"), 125, 'no task named "exprot-b" (did you mean "export-b"?)'),
        (("run", "export-a", "web"), 125, "web is a service; use ringward start web"),
        (("run", "export-a", "by-schedule"), 125, "by-schedule has api_trigger = false"),
        (("run", "--all"), 64, "--all needs --yes"),
        (("run", "export-*", "-p", "x=1"), 64, "-p needs a single task"),
        (("rm", "--all"), 64, "--all needs --yes"),
        (("rerun", "--all"), 64, "--all needs --yes"),
        (("rm", "exprot-b"), 1, '(did you mean "export-b"?)'),
        (("next", "web"), 1, "web is a service without a schedule"),
        (("ps", "--group", "shpo"), 1, 'no group named "shpo" (did you mean "shop"?)'),
    ],
)
def test_ambiguous_selections_change_nothing(shop: Daemon, arguments: tuple[str, ...], code: int, message: str) -> None:
    """A part of the selection that matches nothing, or all without a confirmation, changes nothing."""
    before = count(shop)
    refused = shop.cli(*arguments)
    assert refused.returncode == code
    assert message in refused.stderr
    assert count(shop) == before


def test_filtered_lists(shop: Daemon) -> None:
    """Lists can be filtered by names, globs, groups and tags, runs also by conditions; they show the instance."""
    assert column(shop.cli("ps", "export-*", "web").stdout) == ["export-a", "export-b", "web"]
    assert column(shop.cli("ps", "--group", "shop", "--tag", "nightly").stdout) == ["export-a"]
    assert sorted(column(shop.cli("next", "--group", "shop", "-n", "2").stdout)) == ["by-schedule", "export-a"]
    for name in ("export-a", "export-b", "other"):
        shop.ended(shop.trigger(name))
    assert column(shop.cli("runs", "export-*").stdout, 1) == ["export-b", "export-a"]
    assert column(shop.cli("runs", "--exit-code", "1-9").stdout, 1) == ["export-b"]
    assert column(shop.cli("runs", "--before", "1h").stdout) == []
    assert column(shop.cli("runs", "export-a", "--after", "1h", "--trigger", "api").stdout, 1) == ["export-a"]
    assert column(shop.cli("runs", "--search", "OTH").stdout, 1) == ["other"]
    assert shop.cli("start", "web").returncode == 0
    assert sorted(column(shop.cli("runs", "web").stdout, 2)) == ["0", "1"]
    assert shop.cli("rm", "export-*", "--exit-code", "3").stdout == "1 run deleted\n"
    assert column(shop.cli("runs", "--group", "shop", "--status", "ended").stdout, 1) == ["export-a"]
    assert shop.cli("rerun", "--group", "shop", "--status", "ended").stdout.splitlines()[1].endswith("\texport-a")


def test_parts_of_ids(shop: Daemon) -> None:
    """The beginning or the end of an id identifies it, in either case; an ambiguous part lists the candidates."""
    first, second, running = shop.trigger("export-a"), shop.trigger("export-b"), shop.trigger("waits")
    shop.ended(first)
    shop.ended(second)
    assert shop.cli("logs", first[-6:]).stdout == "from a\n"
    assert shop.cli("logs", second[-8:].lower()).stdout == "from b\n"
    assert "exit code\t3" in shop.cli("ending", second[-6:]).stdout
    assert shop.cli("search", "export-a", "from", "--run", first[-6:]).returncode == 0
    assert shop.cli("stop", running[-7:]).stdout == f"{running}\n"
    beginning = first[: [ours == theirs for ours, theirs in zip(first, second, strict=True)].index(False)]
    ambiguous = shop.cli("ending", beginning)
    assert ambiguous.returncode == 1
    assert f"{beginning} is ambiguous" in ambiguous.stderr
    assert {first, second} <= set(ambiguous.stderr.split())
    assert shop.cli("rm", first[-6:], second[-6:]).stdout == "2 runs deleted\n"
    assert shop.cli("restore", second[-6:]).stdout == "1 run restored\n"
    assert shop.cli("rerun", second[-6:]).returncode == 0


def test_terminal_shows_the_ends_of_ids(shop: Daemon) -> None:
    """Other commands accept the shortened id in the table."""
    run = shop.trigger("export-a")
    shop.ended(run)
    ours, theirs = os.openpty()
    tty.setraw(theirs)
    subprocess.run(
        [*shop.client_command(), "runs", "--config", str(shop.config)],
        stdout=theirs,
        env={**shop.environment(), "COLUMNS": "120"},
        check=True,
    )
    os.set_blocking(ours, False)
    received = bytearray()

    def is_shown() -> bool:  # the kernel passes on the output of a terminal in parts, and later
        with contextlib.suppress(BlockingIOError):
            received.extend(os.read(ours, 65536))
        return run[-8:].encode() in received

    until(is_shown, "the end of the id")
    os.close(theirs)
    os.close(ours)
    assert run.encode() not in received


def test_watched_list(shop: Daemon, tmp_path: Path) -> None:
    """The list is printed again after a change, even across a restart of the daemon; Ctrl-C ends it with success."""
    out = tmp_path / "watched"
    with out.open("wb") as file:
        watching = subprocess.Popen(
            [*shop.client_command(), "ps", "waits", "--watch", "--config", str(shop.config)],
            stdout=file,
            env=shop.environment(),
        )
    try:
        until(lambda: "waits\ttask\tidle" in out.read_text(), "the list")
        shop.trigger("waits")
        until(lambda: "waits\ttask\trunning" in out.read_text(), "the change")
        shop.stop()
        shop.start()
        until(lambda: "daemon_stopped" in out.read_text(), "the change over the restart")
        watching.send_signal(signal.SIGINT)
        assert watching.wait(30) == 0
    finally:
        watching.kill()
        watching.wait()
