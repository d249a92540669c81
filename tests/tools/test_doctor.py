"""Findings of the doctor."""

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from store.database import open_writer
from supervisor.cli import exit_codes
from supervisor.config.load import load
from supervisor.tools.doctor import data as look
from supervisor.tools.doctor import host
from supervisor.tools.doctor.clock_check import OLDEST, judged
from tests.support.command_line import Ringward
from tests.support.paths import ROOT


@pytest.fixture
def config(tmp_path: Path) -> Path:
    path = tmp_path / "ringward.toml"
    path.write_text("[tasks.a]\nrun = 'true'\n")
    path.chmod(0o600)
    return path


def findings(text: str) -> dict[str, tuple[str, str]]:
    return {finding["what"]: (finding["verdict"], finding["text"]) for finding in json.loads(text)}


def test_healthy_host(ringward: Ringward, config: Path, data: Path) -> None:
    """The doctor checks everything, finds no failure, and creates nothing."""
    result = ringward("doctor", "-c", str(config), "--json")
    findings_found = findings(result.output)
    assert list(findings_found) == [
        "configuration",
        "runs",
        "API workers",
        "data directory",
        "disk",
        "database",
        "shared memory",
        "cgroups",
        "descriptors",
        "clock",
        "installation",
    ]
    assert {verdict for verdict, _ in findings_found.values()} <= {"ok", "warn"}
    assert result.exit_code == exit_codes.OK
    assert list(data.iterdir()) == []


def test_troubleshooting_is_named(ringward: Ringward, config: Path) -> None:
    """The doctor names the page and the section that explain other messages, and both exist."""
    named = re.search(r"see (\w+) in (\S+)", ringward("doctor", "-c", str(config)).stderr)
    assert named is not None
    assert f"\n{named[1]}\n{'-' * len(named[1])}\n" in (ROOT / named[2]).read_text()


def test_invalid_configuration(ringward: Ringward, config: Path) -> None:
    """The doctor reports the first problem of the configuration and still performs its other checks."""
    config.write_text("[tasks.a]\nrun = 'true'\nrunn = 'true'\n")
    result = ringward("doctor", "-c", str(config))
    assert result.exit_code == exit_codes.REFUSED
    assert "fail" in result.output
    assert "unknown key" in result.output
    assert "^J" not in result.output
    assert "data directory" in result.output


@pytest.mark.skipif(os.geteuid() != 0, reason="only root distrusts files")
def test_writable_configuration(ringward: Ringward, config: Path) -> None:
    """A configuration that other users can write is a failure."""
    config.chmod(0o666)
    result = ringward("doctor", "-c", str(config), "--json")
    assert findings(result.output)["configuration"][0] == "fail"


@pytest.mark.parametrize(("mode", "verdict"), [(0o700, "ok"), (0o750, "warn"), (0o777, "fail")])
def test_data_directory_permissions(data: Path, mode: int, verdict: str) -> None:
    """A data directory that others can enter is a warning; write permission for others is a failure."""
    data.chmod(mode)
    finding = look.directory(str(data))
    assert finding.verdict == verdict
    assert (finding.remedy is None) == (verdict == "ok")


def test_damaged_database(config: Path, data: Path) -> None:
    """The database is read to its end and not changed, and damage is a failure."""
    path = data / "ringward.db"
    open_writer(str(path)).close()
    loaded = load(str(config), {})
    assert look.database(loaded, str(data)).verdict == "ok"
    content = bytearray(path.read_bytes())
    content[4096 * 3 : 4096 * 9] = os.urandom(4096 * 6)
    path.write_bytes(content)
    finding = look.database(loaded, str(data))
    assert finding.verdict == "fail"
    assert "backup" in (finding.remedy or "")
    assert path.read_bytes() == content


def test_database_that_cannot_be_found(config: Path, data: Path) -> None:
    """A database in a directory that cannot be searched is not reported as missing."""
    (data / "file").touch()
    finding = look.database(load(str(config), {}), str(data / "file"))
    assert (finding.verdict, "Not a directory" in finding.text) == ("fail", True)


def test_nearly_full_disk(tmp_path: Path) -> None:
    """Too little space for logs is a failure, and little space is a warning."""
    place = os.statvfs(tmp_path)
    free = place.f_bavail * place.f_frsize
    assert look.disk(str(tmp_path), 0).verdict == "ok"
    assert look.disk(str(tmp_path / "not" / "there"), free * 2 // 3).verdict == "warn"
    assert look.disk(str(tmp_path), free * 2).verdict == "fail"


@pytest.mark.parametrize("keeps_reserve", [False, True])
def test_disk_without_room_for_the_database(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, keeps_reserve: bool
) -> None:
    """A disk without room for the database is a failure, unless the reserve file exists."""
    full = os.statvfs_result((4096, 4096, 1536, 0, 0, 1_000_000, 900_000, 900_000, 0, 255))
    monkeypatch.setattr(os, "statvfs", lambda _path: full)
    if keeps_reserve:
        (tmp_path / "reserve").touch()
    assert look.disk(str(tmp_path), 0).verdict == ("ok" if keeps_reserve else "fail")


def process(proc: Path, pid: int, name: str, *watches: int) -> None:
    """Create a process in a simulated /proc with an inotify instance for each number of watches."""
    folder = proc / str(pid)
    for part in ("fd", "fdinfo"):
        (folder / part).mkdir(parents=True)
    (folder / "comm").write_text(f"{name}\n")
    for fd, count in enumerate(watches):
        (folder / "fd" / str(fd)).symlink_to("anon_inode:inotify")
        (folder / "fdinfo" / str(fd)).write_text("pos:\t0\n" + "inotify wd:1 ino:2\n" * count)
    (folder / "fd" / "9").symlink_to("/dev/null")


@pytest.mark.parametrize(
    ("needed", "raised"),
    [
        ((2, 7), ""),
        ((3, 7), "fs.inotify.max_user_instances"),
        ((2, 8), "fs.inotify.max_user_watches"),
        ((3, 8), "fs.inotify.max_user_instances and fs.inotify.max_user_watches"),
    ],
)
def test_inotify_limits(tmp_path: Path, needed: tuple[int, int], raised: str) -> None:
    """The need must fit beside the use of other programs, which excludes our own file watcher."""
    limits = tmp_path / "sys/fs/inotify"
    limits.mkdir(parents=True)
    (limits / "max_user_instances").write_text("4\n")
    (limits / "max_user_watches").write_text("10\n")
    process(tmp_path, 7, "editor", 2, 1)
    process(tmp_path, 8, "ringward filewa", 5)
    finding = host.inotify(*needed, proc=str(tmp_path))
    instances, watches = needed
    used = "used by other programs of this user"
    assert finding.text == f"instances: {instances} needed, 2 of 4 {used}; watches: {watches} needed, 3 of 10 {used}"
    assert finding.verdict == ("warn" if raised else "ok")
    assert finding.remedy == (f"raise {raised} with sysctl, and in /etc/sysctl.d" if raised else None)


def test_kernel_without_inotify(tmp_path: Path) -> None:
    """A kernel without inotify is a warning, because it affects tasks with on_change."""
    finding = host.inotify(1, 1, proc=str(tmp_path))
    assert (finding.verdict, finding.remedy) == ("warn", "use a kernel with CONFIG_INOTIFY_USER")


def test_inotify_need(ringward: Ringward, config: Path) -> None:
    """Only tasks with on_change need inotify: each an instance, and a watch for each of its directories."""
    config.write_text(
        "[tasks.a]\nrun = 'true'\non_change = ['/in/*.a', '/in/*.b', '/more/*']\n"
        "[tasks.b]\nrun = 'true'\non_change = '/in/*'\n[tasks.c]\nrun = 'true'\n"
    )
    _verdict, text = findings(ringward("doctor", "-c", str(config), "--json").output)["inotify"]
    assert "instances: 2 needed" in text
    assert "watches: 3 needed" in text


def test_shared_memory(tmp_path: Path) -> None:
    """The first usable place on tmpfs is named, and none is a failure."""
    place = str(tmp_path)
    assert host.shared_memory([place], {"/": "ext4"}).verdict == "fail"
    finding = host.shared_memory(["/nowhere/ringward", place + "/ringward"], {"/": "ext4", place: "tmpfs"})
    assert finding.text.startswith(place)


def test_cgroups(tmp_path: Path) -> None:
    """A writable cgroup of version 2 passes, and missing controllers for limits are named."""
    (tmp_path / "self").mkdir()
    (tmp_path / "self" / "cgroup").write_text("4:memory:/old\n0::/mine\n")
    mine = tmp_path / "mine"
    mine.mkdir()
    (mine / "cgroup.controllers").write_text("cpu io memory pids\n")
    types = {"/": "ext4", str(tmp_path): "cgroup2"}
    assert host.cgroups({"/": "ext4"}, str(tmp_path)).verdict == "warn"
    assert host.cgroups(types, str(tmp_path)).verdict == "ok"
    (mine / "cgroup.controllers").write_text("cpu\n")
    text = host.cgroups(types, str(tmp_path)).text
    lost = "limits.memory and limits.memory_high and limits.swap and limits.io_weight and limits.pids"
    assert text.endswith(f"without memory, io, pids: {lost} are not applied")


def test_clocks() -> None:
    """A clock in the past is an error; a clock without synchronisation is a warning."""
    now = OLDEST.timestamp() + 86_400
    assert judged(0, free=False).verdict == "fail"
    assert judged(now, free=True).verdict == "warn"
    assert judged(now, free=False).verdict == "ok"
    assert judged(now, free=None).verdict == "ok"


def test_read_only_file_system_is_named(config: Path, data: Path) -> None:
    """The doctor says that the file system is mounted read-only, and advises neither chown nor a backup."""
    (data / "below").mkdir()
    doctor = [sys.executable, "-c", "from supervisor.cli.entry import main; main()", "doctor", "-c", str(config)]
    mounted = 'mount -t tmpfs -o ro none "$0" && exec "$@"'
    for where in (data, data / "below" / "new"):
        command = ["unshare", "--map-root-user", "--mount", "sh", "-c", mounted, str(data), *doctor]
        done = subprocess.run([*command, "--data", str(where), "--json"], capture_output=True, text=True)
        if not done.stdout:
            pytest.skip(f"nothing can be mounted here: {done.stderr}")
        by_check = {finding["what"]: finding for finding in json.loads(done.stdout)}
        assert done.returncode == exit_codes.REFUSED
        directory, database = by_check["data directory"], by_check["database"]
        assert directory["verdict"] == "fail"
        assert "is on a read-only file system" in directory["text"]
        assert "mount it writable" in directory["remedy"]
        assert "read-only" in database["text"]
        assert "backup" not in database["remedy"]
