"""Full logs and full disks, through the real daemon."""

import os
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.support.daemon import Daemon, program, shell_program
from tests.support.waiting import until

LINES = 60_000  # more than the largest ring holds
PRINTED = b"".join(b"%099d\n" % number for number in range(LINES))
FLOOD = program("floods", LINES * 100)


def all_lines(daemon: Daemon, run_id: str) -> tuple[list[dict[str, Any]], dict[str, Any]]:
    """Return every kept line, and the last page without its lines."""
    lines: list[dict[str, Any]] = []
    position = 0
    while True:
        page = daemon.get(f"/api/runs/{run_id}/log?from={position}&limit=10000").json()
        page_lines = page.pop("lines")
        lines += page_lines
        position = page_lines[-1]["n"] + 1 if page_lines else position
        if position >= page["totalLines"] or not page_lines:
            return lines, page


@pytest.mark.lent
@pytest.mark.parametrize("policy", ["drop_new", "kill"])
def test_drop_new_and_kill(daemon: Daemon, policy: str) -> None:
    """drop_new keeps the oldest lines and counts the others; kill also ends the run as log_overflow."""
    # A run that has already ended cannot be stopped.
    then = "exec sleep 1000" if policy == "kill" else "exit 0"
    run_it = f"{shell_program('floods')} {LINES * 100}; {then}"
    daemon.write(f'[tasks.big]\nrun = "{run_it}"\nlog_max_size = "512kb"\nlog_on_full = "{policy}"\n')
    daemon.start()
    run = daemon.ended(daemon.trigger("big"))
    assert run["endReason"] == ("succeeded" if policy == "drop_new" else "log_overflow")
    lines, page = all_lines(daemon, run["id"])
    raw = daemon.get(f"/api/runs/{run['id']}/log/raw").body
    assert PRINTED.startswith(raw)
    assert 400_000 < len(raw) < 7 * 65536
    kept_count = len(raw) // 100
    own = [line for line in lines if line["stream"] == "system"]
    assert [line["n"] for line in lines if line["stream"] == "stdout"] == list(range(kept_count))
    notice = own[-1]["text"]
    dropped = int(notice.split()[0])
    assert notice.endswith(" bytes) dropped: the log is full")
    if policy == "drop_new":
        assert notice.startswith(f"{LINES - kept_count} lines ({(LINES - kept_count) * 100} bytes)")
        assert len(own) == 1
    else:
        assert own[0]["text"] == "the log reached log_max_size: stopping"
    assert page["truncated"]
    assert page["totalLines"] == kept_count + dropped + len(own)


@pytest.mark.lent
def test_kill_spares_runs_below_the_limit(daemon: Daemon) -> None:
    """A run whose output just fits ends by itself and loses nothing."""
    daemon.write(f'[tasks.fits]\nrun = {program("floods", 400_000)}\nlog_max_size = "512kb"\nlog_on_full = "kill"\n')
    daemon.start()
    run = daemon.ended(daemon.trigger("fits"))
    assert run["endReason"] == "succeeded"
    assert daemon.get(f"/api/runs/{run['id']}/log/raw").body == PRINTED[:400_000]


@pytest.mark.lent
def test_logs_stop_growing_below_min_free_space(daemon: Daemon) -> None:
    """Below min_free_space, log files do not grow.

    Runs continue, lost lines are counted, and a notification is sent.
    """
    daemon.write(f'[storage]\nmin_free_space = "1tb"\n[tasks.big]\nrun = {FLOOD}\n[tasks.small]\nrun = "echo hello"\n')
    daemon.start()
    events = daemon.stream("/api/events/stream?types=run.updated")
    small = daemon.ended(daemon.trigger("small"))
    assert daemon.texts(small["id"]) == ["hello"]
    big = daemon.ended(daemon.trigger("big"))
    first_data = next(iter(events)).data
    events.close()
    assert first_data["runId"] == big["id"]
    assert first_data["log"]["state"] == "dropping"
    assert "MiB are free on the disk" in first_data["log"]["reason"]
    assert big["endReason"] == "succeeded"
    lines, _ = all_lines(daemon, big["id"])
    kept_lines = [line for line in lines if line["stream"] == "stdout"]
    assert PRINTED.startswith("".join(line["text"] + "\n" for line in kept_lines).encode())
    assert 700_000 < 100 * len(kept_lines) < 16 * 262144
    notice = lines[-1]["text"]
    assert notice.startswith(
        f"{LINES - len(kept_lines)} lines ({100 * (LINES - len(kept_lines))} bytes) dropped: only "
    )
    until(lambda: "its output is dropped" in daemon.output.read_text(), "a word about it")


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of 8 MiB: more than a ring, which is written to the disk once there is space again."""
    if os.geteuid() != 0:
        pytest.skip("only root may mount a small file system")
    path = tmp_path / "small"
    path.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=8m,mode=0700", "ringward-test", path], check=True)
    try:
        yield path
    finally:
        subprocess.run(["umount", "--lazy", path], check=True)  # after a failure the daemon still runs


def test_log_continues_after_a_full_disk(daemon: Daemon, small_disk: Path) -> None:
    """A run continues while the disk is full. Its log continues once there is space, and counts the missing lines."""
    ballast = small_disk / "ballast"
    ballast.write_bytes(bytes(7968 << 10))
    daemon.data.mkdir(mode=0o700)
    (daemon.data / "logs").symlink_to(small_disk)
    gate = daemon.config.parent / "gate"
    daemon.write(
        '[storage]\nmin_free_space = "0b"\n[tasks.big]\n'
        f"run = '''{shell_program('floods')} {LINES * 100}\n"
        f"until [ -e {gate} ]; do :; done; echo behind'''\n"
    )
    daemon.start()
    big = daemon.trigger("big")
    until(lambda: "its output is dropped: No space left" in daemon.output.read_text(), "the disk to be full")
    until(lambda: daemon.get(f"/api/runs/{big}/log?from=-1").json()["totalLines"] >= LINES, "all the output")
    ballast.unlink()
    until(lambda: "the log file can be written again" in daemon.output.read_text(), "the log file")
    gate.touch()
    assert daemon.ended(big)["endReason"] == "succeeded"
    lines, _ = all_lines(daemon, big)
    kept_lines = [line["text"] for line in lines[:-2]]
    assert PRINTED.startswith("".join(text + "\n" for text in kept_lines).encode())
    assert lines[-2]["text"].startswith(f"{LINES - len(kept_lines)} lines (")
    assert lines[-2]["text"].endswith("dropped: No space left on device")
    assert lines[-1]["text"] == "behind"
