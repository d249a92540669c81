"""The type ``file``: records, rotation and failures."""

import json
import os
import stat
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from logring.layout import STDERR
from supervisor.helpers.exporter.cursors import Cursors
from supervisor.helpers.exporter.file_sink import FileSink
from supervisor.helpers.exporter.log_records import DAMAGED, DeliveryFailed, JsonEncoder, LogGap, Piece
from tests.helpers.exporter.pieces import RUN, TS, job, piece
from tests.support.host_features import largest_file


def sink(tmp_path: Path, **keys: Any) -> FileSink:
    path = str(tmp_path / "out" / "log")
    return FileSink(
        job("file", path=path, **{"max_size_bytes": 1 << 20, "keep": 2, **keys}), Cursors(str(tmp_path / "x.cursors"))
    )


def records(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_bytes().splitlines()]


TEXTS = [b"plain", b'"quoted" \\ back', b"tab\tbell\a", "grüße".encode(), b"\xff\xfe", b"", b'","', b"\\n", b'a\\","b']


def test_every_text_is_a_record() -> None:
    """Each line becomes one line of JSON with its text; invalid UTF-8 becomes U+FFFD."""
    encoded = JsonEncoder("db1").encode(piece(b"\n".join(TEXTS), 7))
    decoded = [json.loads(line) for line in encoded.splitlines()]
    assert [record["text"] for record in decoded] == [text.decode(errors="replace") for text in TEXTS]
    assert [record["line"] for record in decoded] == list(range(7, 7 + len(TEXTS)))
    for text in TEXTS:
        (line,) = JsonEncoder("db1").encode(piece(text)).splitlines()
        assert json.loads(line)["text"] == text.decode(errors="replace")


def test_fields_of_a_record() -> None:
    """A record has time, host, task, run id, instance, stream, line number and text."""
    (line,) = JsonEncoder('d"b%d').encode(piece(b"hello", 3, stream=STDERR)).splitlines()
    assert json.loads(line) == {
        "time": "2025-11-26T08:00:00.123Z",
        "host": 'd"b%d',
        "task": "web",
        "runId": RUN.id,
        "instance": 2,
        "stream": "stderr",
        "line": 3,
        "text": "hello",
    }


def test_partial_lines_and_gaps_are_marked() -> None:
    """A part of a long line has `continued`; a gap is one record with the number of missing lines."""
    (part,) = JsonEncoder("db1").encode(piece(b"more", 3, continued=True)).splitlines()
    assert json.loads(part)["continued"] is True
    (gap,) = JsonEncoder("db1").encode(Piece(RUN, LogGap(10, TS, 120, DAMAGED))).splitlines()
    document = json.loads(gap)
    assert (document["line"], document["skipped"], document["stream"]) == (10, 120, "system")
    assert document["text"] == "120 lines missing: the log file is damaged"


def test_file_is_readable_by_its_group(tmp_path: Path) -> None:
    """The file has the mode 0640."""
    sink(tmp_path).deliver([piece(b"a")])
    assert stat.S_IMODE((tmp_path / "out" / "log").stat().st_mode) == 0o640


def test_rotation_by_size(tmp_path: Path) -> None:
    """A full file is renamed to a number; beyond `keep` the oldest is removed; until then no record is lost."""
    exporter_sink = sink(tmp_path, max_size_bytes=1000)
    for number in range(40):
        exporter_sink.deliver([piece(b"x" * 100, number)])
    names = sorted(path.name for path in (tmp_path / "out").iterdir())
    assert names == ["log", "log.1", "log.2"]
    lines = [record["line"] for name in reversed(names) for record in records(tmp_path / "out" / name)]
    assert lines == list(range(lines[0], 40))
    assert all((tmp_path / "out" / name).stat().st_size < 1300 for name in names)


def test_rotation_at_the_limit_on_the_size_of_files(tmp_path: Path) -> None:
    """A file that reaches ``ulimit -f`` is rotated before its maximum size, and no record is lost, cut or repeated."""
    exporter_sink = sink(tmp_path, keep=50)
    with largest_file(2000):
        for number in range(0, 40, 4):
            assert exporter_sink.deliver([piece(b"x" * 100, each) for each in range(number, number + 4)]) == 4
        with pytest.raises(DeliveryFailed, match="File too large"):  # no file can hold it
            exporter_sink.deliver([piece(b"x" * 3000, 40)])
    paths = sorted((tmp_path / "out").iterdir(), key=lambda path: int(path.suffix[1:] or 0), reverse=True)
    assert len(paths) > 3
    assert [record["line"] for path in paths for record in records(path)] == [*range(40)]


def test_without_rotated_files(tmp_path: Path) -> None:
    """With `keep = 0` a full file is removed."""
    exporter_sink = sink(tmp_path, max_size_bytes=1000, keep=0)
    for number in range(10):
        exporter_sink.deliver([piece(b"x" * 100, number)])
    assert [path.name for path in (tmp_path / "out").iterdir()] == ["log"]


def test_rotation_by_age(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A file that is old enough is rotated without new lines, even by the next process; an empty one never is."""
    now_ns = [TS * 1_000_000]
    monkeypatch.setattr("time.time_ns", lambda: now_ns[0])
    exporter_sink = sink(tmp_path, max_age_ms=60_000)
    exporter_sink.deliver([piece(b"a")])
    now_ns[0] += 59_000 * 1_000_000
    exporter_sink.idle()
    assert not (tmp_path / "out" / "log.1").exists()
    now_ns[0] += 1_000 * 1_000_000
    exporter_sink.idle()
    assert len(records(tmp_path / "out" / "log.1")) == 1
    now_ns[0] += 100_000 * 1_000_000
    exporter_sink.idle()
    assert not (tmp_path / "out" / "log.2").exists()
    exporter_sink.deliver([piece(b"b", 1)])
    exporter_sink._cursors.commit()
    exporter_sink.close()
    now_ns[0] += 60_000 * 1_000_000
    following = sink(tmp_path, max_age_ms=60_000)
    following.idle()
    assert [record["line"] for record in records(tmp_path / "out" / "log.1")] == [1]
    assert (tmp_path / "out" / "log").read_bytes() == b""
    now_ns[0] += 100_000 * 1_000_000
    following.idle()
    assert sorted(os.listdir(tmp_path / "out")) == ["log", "log.1", "log.2"]


def test_idle_process_creates_no_file(tmp_path: Path) -> None:
    """Before its first record, an export creates no file."""
    sink(tmp_path, max_age_ms=1).idle()
    assert not (tmp_path / "out").exists()


def test_renamed_file_is_created_again(tmp_path: Path) -> None:
    """After another program rotated the file, records go to a new one."""
    exporter_sink = sink(tmp_path)
    exporter_sink.deliver([piece(b"a", 0)])
    os.rename(tmp_path / "out" / "log", tmp_path / "moved")
    exporter_sink.deliver([piece(b"b", 1)])
    assert [record["text"] for record in records(tmp_path / "out" / "log")] == ["b"]
    assert [record["text"] for record in records(tmp_path / "moved")] == ["a"]


def test_incomplete_record_is_removed(tmp_path: Path) -> None:
    """An incomplete record that a crash left is removed before the next record."""
    sink(tmp_path).deliver([piece(b"a", 0)])
    with (tmp_path / "out" / "log").open("ab") as file:
        file.write(b'{"time":"' + b"x" * 100_000)
    sink(tmp_path).deliver([piece(b"b", 1)])
    assert [record["text"] for record in records(tmp_path / "out" / "log")] == ["a", "b"]


def _fifo(path: Path) -> None:
    os.mkfifo(path)


def _link(path: Path) -> None:
    path.symlink_to(path.with_name("elsewhere"))


@pytest.mark.parametrize("make", [_fifo, _link, Path.mkdir])
def test_only_regular_files_are_written(tmp_path: Path, make: Callable[[Path], None]) -> None:
    """A FIFO, a symbolic link or a directory at the path is an error, and the sink does not wait for it."""
    (tmp_path / "out").mkdir()
    make(tmp_path / "out" / "log")
    with pytest.raises(DeliveryFailed, match="cannot write"):
        sink(tmp_path).deliver([piece(b"a")])


def test_full_disk_repeats_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """If the disk fills up within a batch, the earlier records stay, and no part of the failed one."""
    exporter_sink = sink(tmp_path)
    exporter_sink.deliver([piece(b"a", 0)])
    write, calls = os.write, []

    def full(fd: int, data: memoryview) -> int:
        calls.append(fd)
        if len(calls) == 1:
            return write(fd, data)
        if len(calls) == 2:
            return write(fd, data[:10])
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr("os.write", full)
        with pytest.raises(DeliveryFailed, match="No space left on device") as failed:
            exporter_sink.deliver([piece(b"b", 1), piece(b"c", 2)])
    assert failed.value.delivered == 1
    exporter_sink.deliver([piece(b"c", 2)])
    assert [record["text"] for record in records(tmp_path / "out" / "log")] == ["a", "b", "c"]


def test_failed_sync_delivers_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """If a sync fails, even in the middle of a large batch, no record counts as delivered."""
    exporter_sink = sink(tmp_path, max_size_bytes=1 << 30)
    pieces = [piece(b"x" * 1_000_000, number) for number in range(12)]
    calls: list[int] = []

    def failing(fd: int) -> None:
        calls.append(fd)
        if len(calls) == 1:
            raise OSError(5, "Input/output error")

    with monkeypatch.context() as patch:
        patch.setattr("os.fdatasync", failing)
        with pytest.raises(DeliveryFailed, match="Input/output error") as failed:
            exporter_sink.deliver(pieces)
    assert failed.value.delivered == 0
    assert exporter_sink.deliver(pieces) == 12


@pytest.mark.parametrize("max_size_bytes", [1 << 20, 1 << 30])
def test_failed_sync_of_a_part(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, max_size_bytes: int) -> None:
    """A failed sync of a part fails the whole delivery, because the kernel reports an error only once."""
    exporter_sink = sink(tmp_path, max_size_bytes=max_size_bytes)
    pieces = [piece(b"x" * 1_000_000, number) for number in range(6)]
    errors = [OSError(5, "Input/output error")]
    sync = os.fdatasync

    def failing_once(fd: int) -> None:
        if errors:
            raise errors.pop()
        sync(fd)

    with monkeypatch.context() as patch:
        patch.setattr("os.fdatasync", failing_once)
        with pytest.raises(DeliveryFailed, match="Input/output error") as failed:
            exporter_sink.deliver(pieces)
    assert failed.value.delivered == 0
    assert exporter_sink.deliver(pieces) == 6
    exporter_sink.close()


def test_rotation_delivers_synced_records(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Records that a rotation has synced are delivered, even if a later sync of the same batch fails."""
    exporter_sink = sink(tmp_path, max_size_bytes=1, keep=5)
    pieces = [piece(b"%d" % number, number) for number in range(4)]
    sync, calls = os.fdatasync, []

    def failing(fd: int) -> None:
        calls.append(fd)
        if len(calls) == 3:
            raise OSError(5, "Input/output error")
        sync(fd)

    with monkeypatch.context() as patch:
        patch.setattr("os.fdatasync", failing)
        with pytest.raises(DeliveryFailed, match="Input/output error") as failed:
            exporter_sink.deliver(pieces)
    assert failed.value.delivered == 2
    assert exporter_sink.deliver(pieces[2:]) == 2
    exporter_sink.close()


def test_rotation_cannot_create_a_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """If a rotation cannot create the new file, the records before it are delivered, and the error has the reason."""
    exporter_sink = sink(tmp_path, max_size_bytes=1)
    create, calls = os.open, []

    def full(path: str, *arguments: int) -> int:
        calls.append(path)
        if len(calls) == 2:
            raise OSError(28, "No space left on device")
        return create(path, *arguments)

    with monkeypatch.context() as patch:
        patch.setattr("os.open", full)
        with pytest.raises(DeliveryFailed, match="No space left on device") as failed:
            exporter_sink.deliver([piece(b"a", 0), piece(b"b", 1)])
    assert failed.value.delivered == 1
    assert exporter_sink.deliver([piece(b"b", 1)]) == 1
    assert [record["text"] for name in ("log.1", "log") for record in records(tmp_path / "out" / name)] == ["a", "b"]
    exporter_sink.close()
