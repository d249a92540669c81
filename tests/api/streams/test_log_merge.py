"""The order of lines of several logs, and the cursor, without a server."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from api.streams.log_merge import (
    MAX_CURSOR,
    MAX_RUNS,
    BadCursor,
    Cursor,
    End,
    Merge,
    MissingLines,
    Track,
    cursor_of,
    decode,
    key_of,
)
from logring.block import Batch
from store.runs.ids import new_ulid

NOW_MS = 10_000
Log = list[tuple[int, int]]
"""Time and number of lines of each batch."""

ids = st.builds(lambda number: f"01{number:024d}", st.integers(0, 10**20))
logs = st.lists(st.tuples(st.integers(0, NOW_MS), st.integers(1, 3)), max_size=12)


def batches(log: Log) -> list[Batch]:
    """Batches of a log that begins with line 0; its times may step back."""
    made_batches, first = [], 0
    for ts, count in log:
        made_batches.append(Batch(first, ts, 0, b"\n".join([b"x"] * count), False, 0, count))
        first += count
    return made_batches


def expected(all_logs: dict[str, Log]) -> list[tuple[str, int]]:
    """Run and first line of all batches, in the order of the latest time so far, then run, then line."""
    places = []
    for run_id, log in all_logs.items():
        latest = 0
        for batch in batches(log):
            latest = max(latest, batch.ts)
            places.append((latest, run_id, batch.n))
    return [(run_id, n) for _, run_id, n in sorted(places)]


def merged(all_logs: dict[str, Log], page: int, starts: dict[str, int], stop: int = 1 << 30) -> tuple[Any, Any]:
    """Merge logs that are read in pages of so many batches; return the taken lines, and the position of each run."""
    merge = Merge()
    taken: list[tuple[str, int]] = []
    remaining = {
        run_id: [batch for batch in batches(log) if batch.n >= starts.get(run_id, 0)]
        for run_id, log in all_logs.items()
    }
    latest = dict.fromkeys(all_logs, 0)
    tracks = {run_id: Track(run_id, starts.get(run_id, 0)) for run_id in all_logs}
    for run_id, log in all_logs.items():  # lines sent before count for the time
        done = [batch.ts for batch in batches(log) if batch.n < starts.get(run_id, 0)]
        tracks[run_id].latest_ms = latest[run_id] = max(done, default=0)
    while len(taken) < stop:
        for run_id, track in tracks.items():
            if track.behind and not track.queue:
                part, remaining[run_id] = remaining[run_id][:page], remaining[run_id][page:]
                track.behind = bool(remaining[run_id])
                merge.put(track, [(record.ts, record) for record in part], NOW_MS)
        if not merge:
            break
        for track, item in merge.take(NOW_MS, 1 << 30, 1 << 30):
            track.advance(item)
            assert isinstance(item, Batch)
            taken.append((track.run_id, item.n))
            if len(taken) >= stop:
                break
    for track in tracks.values():
        assert track.queued == sum(len(item.text) + 1 for _, item in track.queue if isinstance(item, Batch))
    return taken, {run_id: track.next for run_id, track in tracks.items()}


@given(st.dictionaries(ids, logs, max_size=5), st.integers(1, 4))
def test_lines_are_ordered_by_time_then_run_then_number(all_logs: dict[str, Log], page: int) -> None:
    """The order is the same for any page size; lines of one run keep their order if the clock steps back."""
    assert merged(all_logs, page, {})[0] == expected(all_logs)


@given(st.dictionaries(ids, logs, max_size=5), st.integers(0, 30), st.integers(1, 4))
def test_merge_resumes_at_a_cursor(all_logs: dict[str, Log], stop: int, page: int) -> None:
    """A merge that is interrupted anywhere and resumed at its cursor sends each line once, in the same order."""
    first, places = merged(all_logs, page, {}, stop)
    cursor = decode(cursor_of(0, 0, places, {}).encode())
    second, _ = merged(all_logs, page, dict(cursor.lines))
    assert first + second == expected(all_logs)


@given(
    st.integers(0, 2**45),
    st.integers(0, 2**45),
    st.dictionaries(ids, st.integers(0, 2**62), max_size=MAX_RUNS),
    st.lists(ids, max_size=50),
)
def test_cursor_round_trip(floor: int, at: int, parts: dict[str, int], ended: list[str]) -> None:
    """Time, floor, lines and complete runs are read as they were written."""
    cursor = Cursor(floor, at, parts, frozenset(map(key_of, ended)))
    assert decode(cursor.encode()) == cursor
    assert all(cursor.is_complete(run_id) for run_id in ended)


def test_cursor_size_is_bounded() -> None:
    """With the most open runs and thousands of ended ones, the cursor drops the oldest ended runs."""
    parts = {new_ulid(): 2**40 for _ in range(MAX_RUNS)}
    ended = {new_ulid(): 1000 + index for index in range(5000)}
    cursor = cursor_of(0, 500, parts, ended)
    assert len(cursor.encode()) <= MAX_CURSOR
    assert dict(cursor.lines) == parts
    assert len(cursor.complete) >= 10
    for run_id, at in ended.items():
        assert at < cursor.time_ms or cursor.is_complete(run_id)


@pytest.mark.parametrize("change", [lambda text: text[:-1], lambda text: "B" + text[1:], lambda text: text + "AAAA"])
def test_damaged_cursors(change: Any) -> None:
    """Truncated, changed and lengthened cursors are refused."""
    text = cursor_of(5, 7, {new_ulid(): 3}, {}).encode()
    with pytest.raises(BadCursor):
        decode(change(text))


@pytest.mark.parametrize("text", ["", "17", "ä", "=", "A" * (MAX_CURSOR + 1), "-1"])
def test_other_text_as_a_cursor(text: str) -> None:
    """Line numbers and texts that are too long are no cursors."""
    with pytest.raises(BadCursor):
        decode(text)


def test_lagging_run_holds_back_the_others() -> None:
    """The merge waits for a lagging run, because its next line may be older."""
    merge, early, late = Merge(), Track("A", 0), Track("B", 0)
    late.behind = False
    merge.put(early, [(1, batches([(1, 1)])[0])], NOW_MS)
    merge.put(late, [(2, batches([(2, 1)])[0])], NOW_MS)
    assert [track.run_id for track, _ in merge.take(NOW_MS, 10, 100)] == ["A"]
    early.behind = False
    merge.put(early, [(9, MissingLines(0, 5)), (9, End())], NOW_MS)
    assert [(track.run_id, type(item)) for track, item in merge.take(NOW_MS, 10, 100)] == [
        ("B", Batch),
        ("A", MissingLines),
        ("A", End),
    ]


def test_lines_from_the_future_count_as_read_now() -> None:
    """A run whose clock was set back is therefore not held back for hours."""
    merge, track = Merge(), Track("A", 0)
    merge.put(track, [(NOW_MS + 3_600_000, batches([(0, 1)])[0])], NOW_MS)
    assert merge.first_ms == NOW_MS
