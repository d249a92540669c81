"""The positions of an export on disk."""

import shutil
from pathlib import Path

import pytest

from supervisor.helpers.exporter.cursors import Cursors, FollowedRun, UnreadableJournal
from tests.support.host_features import largest_file

RUN = FollowedRun("01K0000000000000000000000A", "web", 2)


def written(path: Path) -> Cursors:
    cursors = Cursors(str(path))
    cursors.add_runs([(1, RUN.id), (2, "other")], 1000, [RUN])
    cursors.move(RUN.id, 17)
    cursors.note("since", 5)
    cursors.commit()
    return cursors


def test_positions_survive_a_restart(tmp_path: Path) -> None:
    """Runs, positions, rows and facts are the same after a restart."""
    written(tmp_path / "x.cursors")
    again = Cursors(str(tmp_path / "x.cursors"))
    assert (again.runs, again.at, list(again.seen), again.seen_at, again.facts) == (
        {RUN.id: RUN},
        {RUN.id: 17},
        [(1, RUN.id), (2, "other")],
        1000,
        {"since": 5},
    )


def test_uncommitted_changes_are_not_stored(tmp_path: Path) -> None:
    """Only a commit stores positions, so a crash before it repeats lines and loses none."""
    cursors = written(tmp_path / "x.cursors")
    cursors.move(RUN.id, 18)
    assert Cursors(str(tmp_path / "x.cursors")).at == {RUN.id: 17}


def test_incomplete_last_line_is_ignored(tmp_path: Path) -> None:
    """A journal that was cut at any byte of its last line has the positions of the previous commit."""
    path = tmp_path / "x.cursors"
    cursors = written(path)
    before = path.stat().st_size
    cursors.move(RUN.id, 18)
    cursors.commit()
    whole = path.read_bytes()
    for size in range(before, len(whole)):
        path.write_bytes(whole[:size])
        assert Cursors(str(path)).at == {RUN.id: 17}


def test_finished_run_is_forgotten(tmp_path: Path) -> None:
    """A run that was delivered to its end is not followed after a restart."""
    cursors = written(tmp_path / "x.cursors")
    cursors.finish(RUN.id)
    cursors.commit()
    again = Cursors(str(tmp_path / "x.cursors"))
    assert not again.runs
    assert not again.at
    assert again.seen_at == 1000


def test_journal_is_rewritten(tmp_path: Path) -> None:
    """After many commits the journal is rewritten with the same positions."""
    path = tmp_path / "x.cursors"
    cursors = written(path)
    for number in range(40):
        cursors.add_runs([(number, "y" * 200_000)], 1000, [])
        cursors.finish("y" * 200_000)
        cursors.commit()
    cursors.move(RUN.id, 19)
    cursors.commit()
    assert Cursors(str(path)).at == {RUN.id: 19}


def test_journal_is_rewritten_at_the_limit_on_the_size_of_files(tmp_path: Path) -> None:
    """A journal that reaches ``ulimit -f`` is rewritten with the same positions, and the export goes on."""
    path = tmp_path / "x.cursors"
    with largest_file(2000):
        cursors = written(path)
        for number in range(200):
            cursors.move(RUN.id, number)
            cursors.commit()
    assert path.stat().st_size <= 2000
    assert Cursors(str(path)).at == {RUN.id: 199}


@pytest.mark.parametrize("to", ["elsewhere", None])
def test_lost_journal_is_written_again(tmp_path: Path, to: str | None) -> None:
    """If the directory is moved or removed, the next commit writes the whole journal at its path."""
    path = tmp_path / "exports" / "x.cursors"
    path.parent.mkdir()
    cursors = written(path)
    if to is None:
        shutil.rmtree(path.parent)
    else:
        path.parent.rename(tmp_path / to)
    cursors.move("other", 3)
    cursors.commit()
    assert Cursors(str(path)).at == {RUN.id: 17, "other": 3}


def test_failed_commit_is_repeated(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A commit that the disk refused leaves the journal unchanged, and the next one stores its changes too."""
    path = tmp_path / "x.cursors"
    cursors = written(path)
    cursors.move(RUN.id, 18)
    with monkeypatch.context() as patch:

        def full(_fd: int) -> None:
            raise OSError(28, "No space left on device")

        patch.setattr("os.fdatasync", full)
        with pytest.raises(OSError, match="No space"):
            cursors.commit()
    assert Cursors(str(path)).at == {RUN.id: 17}
    cursors = Cursors(str(path))
    cursors.move(RUN.id, 20)
    cursors.commit()
    assert Cursors(str(path)).at == {RUN.id: 20}


@pytest.mark.parametrize(
    "text",
    [
        '{"format":2}\n',
        "nonsense\n",
        '{"format":1}\nnonsense\n',
        "[]\n",
        pytest.param('{"format":1}\n' + "[" * 100_000 + "\n", id="nested"),
    ],
)
def test_unknown_journal_is_refused(tmp_path: Path, text: str) -> None:
    """A damaged journal, or one of a newer release, is an error and is not changed."""
    path = tmp_path / "x.cursors"
    path.write_text(text)
    with pytest.raises(UnreadableJournal):
        Cursors(str(path))
    assert path.read_text() == text
