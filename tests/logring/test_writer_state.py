"""A writer that is handed over to another program continues unchanged."""

import dataclasses
import errno
import json
import os
from collections.abc import Callable
from dataclasses import dataclass

import pytest
from hypothesis import given
from hypothesis import strategies as st

from logring.errors import Corrupt
from logring.layout import STDERR, STDOUT
from logring.mask import Mask, MaskState
from logring.reader import LogReader
from logring.redraw.pacing import Pace
from logring.redraw.redraw_writer import Drawing, FrameQueue
from logring.redraw.reducer import Redraw
from logring.redraw.row_cells import Row
from logring.redraw.sampling import Samples
from logring.redraw.screen import Screen
from logring.redraw.unsettled_rows import Rows
from logring.ring.block_writer import BlockWriter
from logring.ring.dropped_lines import Gap
from logring.ring.open_block import HeadBlock
from logring.ring.ring import RingState
from logring.ring.stream_state import StreamState
from logring.ring.writer import RingWriter
from logring.state_json import _TAGS, UnknownFormat, from_json, tagged, to_json
from tests.logring.redraw.test_reducer_properties import hostile
from tests.logring.support.reducing import pieces
from tests.logring.support.rings import Log, texts
from tests.support.paths import ROOT

MakeLog = Callable[..., Log]
OF_THE_RING = ("ring", "mm", "view", "head")
"""Attributes of a writer that are restored from its ring."""
OF_THE_FILE = ("path", "static", "mm", "fd")
"""Attributes of a ring that are restored from its file."""


@given(hostile, st.integers(1, 40), st.booleans())
def test_handover_during_a_drawing(data: bytes, size: int, full: bool) -> None:
    """A handover at any point of a drawing changes neither settled lines nor their history nor the shown lines."""
    here = Redraw(full=full)
    there = Redraw(full=full)
    for piece in pieces(data, size):
        assert there.feed(piece) == here.feed(piece)
        there = from_json(Redraw, json.loads(json.dumps(to_json(there))))
        assert there.region() == here.region()
    assert there.finish() == here.finish()


def test_secret_across_a_handover(make_log: MakeLog) -> None:
    """If a handover splits a secret, neither half is shown."""
    log = make_log()
    log.writer.mask([b"hunter2-hunter2"])
    log.feed(STDOUT, b"the password is hunter2-")
    log.writer.mirror_pending()
    assert b"hunter2" not in b"".join(pending.text for pending in log.reader.pending())
    log.carry_over()
    log.feed(STDOUT, b"hunter2 indeed\n")
    log.finish()
    assert texts(log.lines()) == [b"the password is *** indeed"]
    assert log.writer.masked == 1


def test_drawn_secret_across_a_handover(make_log: MakeLog) -> None:
    """Secrets in redrawn lines are masked across a handover too."""
    log = make_log()
    log.writer.mask([b"hunter2-hunter2"])
    log.writer.redraw(STDOUT, full=True)
    log.feed(STDOUT, b"at 10%\rhunter2-\x1b[1mhun")
    log.carry_over()
    log.feed(STDOUT, b"ter2-hunter2\rhunter2-hunter2\n")
    log.finish()
    assert b"hunter2-hunter2" not in b"".join(texts(log.lines()))


def test_gap_across_a_handover(make_log: MakeLog) -> None:
    """A gap continues across a handover: its lines are counted together and reported once."""
    log = make_log(file_blocks=2, policy="drop_new")
    line = b"x" * 99 + b"\n"
    while log.writer.gap is None:
        log.feed(STDOUT, line)
    dropped = log.writer.blocks.dropped
    log.carry_over()
    log.feed(STDOUT, line * 10)
    log.carry_over()
    assert log.writer.blocks.dropped == dropped + 10
    log.finish()
    (said,) = log.reader.read(log.reader.head().lines - 1, 1).lines
    assert said.text.startswith(b"%d lines (%d bytes) dropped" % (dropped + 10, 100 * (dropped + 10)))


def test_removed_ring(make_log: MakeLog) -> None:
    """A new file gets all contents of a removed ring, takes no more memory, and is used from then on."""
    log = make_log()
    log.feed(STDOUT, b"".join(b"line %d\n" % number for number in range(20_000)) + b"half ")
    log.writer.mirror_pending()
    before = os.stat(log.writer.blocks.path)
    os.unlink(log.writer.blocks.path)
    log.writer = log.writer.in_a_new_file()
    after = os.stat(log.writer.blocks.path)
    assert (after.st_size, after.st_mode) == (before.st_size, before.st_mode)
    assert after.st_ino != before.st_ino
    assert after.st_blocks <= before.st_blocks
    log.feed(STDOUT, b"a line\n")
    reader = LogReader(log.writer.blocks.path, None)
    assert reader.head().lines == 20_001
    assert texts(reader.read(19_999, 2).lines) == [b"line 19999", b"half a line"]
    reader.close()


def test_removed_ring_without_memory(make_log: MakeLog, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without shared memory for the copy, the writer continues as before and leaves no file."""
    log = make_log()
    log.feed(STDOUT, b"one\n")
    os.unlink(log.writer.blocks.path)

    def no_room(step: str, *_: object) -> None:
        raise OSError(errno.ENOSPC, step)

    with monkeypatch.context() as patch:
        patch.setattr("logring.ring.ring.fallocate", no_room)
        with pytest.raises(OSError, match="copy"):
            log.writer.in_a_new_file()
    assert not os.path.exists(log.writer.blocks.path)
    log.writer = log.writer.in_a_new_file()
    log.feed(STDOUT, b"two\n")
    assert log.writer.blocks.lines == 2


def test_unfinished_lines_across_a_handover(make_log: MakeLog) -> None:
    """A handover within a line of each stream does not split the lines."""
    log = make_log()
    log.feed(STDOUT, b"one ")
    log.feed(STDERR, b"two ")
    log.carry_over()
    log.feed(STDOUT, b"whole\n")
    log.carry_over()
    log.feed(STDERR, b"lines\n")
    log.finish()
    assert texts(log.lines()) == [b"one whole", b"two lines"]


def test_silent_log_across_a_handover(make_log: MakeLog) -> None:
    """There is no ring before the first byte, even after a handover."""
    log = make_log()
    log.carry_over()
    assert not log.writer.blocks.created
    log.feed(STDOUT, b"first\n")
    log.finish()
    assert texts(log.lines()) == [b"first"]


@pytest.mark.parametrize("fewer", [False, True])
@pytest.mark.parametrize(("part", "attribute"), [("writer", "_bytes"), ("ring", "taken"), ("head", "fill")])
def test_other_attributes_are_refused(make_log: MakeLog, part: str, attribute: str, fewer: bool) -> None:
    """State of another version, with more or fewer attributes, is refused instead of guessed at."""
    log = make_log()
    log.feed(STDOUT, b"line\n")
    document = json.loads(json.dumps(log.writer.dump(lambda fd: fd)))
    inside = document[part]["HeadBlock"] if part == "head" else dict(document[part]["dict"])
    if fewer:
        del inside[attribute]
    else:
        inside["more"] = 1
    if part != "head":
        document[part] = {"dict": list(inside.items())}
    with pytest.raises((UnknownFormat, KeyError), match=attribute if fewer else "more"):
        RingWriter.load(document)


def test_damaged_ring_is_refused(make_log: MakeLog) -> None:
    """A ring whose beginning is damaged is refused."""
    log = make_log()
    log.feed(STDOUT, b"line\n")
    log.writer.blocks.ring.mm[200] ^= 0xFF
    with pytest.raises(Corrupt):
        RingWriter.load(json.loads(json.dumps(log.writer.dump(lambda fd: fd))))


def test_unknown_classes_are_refused() -> None:
    """Unknown classes are refused both when state is written and when it is read."""
    redraw = Redraw(full=True, _samples=Redraw(full=True))  # type: ignore[arg-type]
    with pytest.raises(AttributeError, match="_count"):
        to_json(redraw)
    body = to_json(Redraw(full=True))["Redraw"]
    with pytest.raises(UnknownFormat, match="Samples"):
        from_json(Redraw, {"Redraw": {**body, "_samples": {"Redraw": body}}})


def test_writers_of_another_version() -> None:
    """Writers that draw, mask, wait or drop output are read and handed over as version 0.1.0 wrote them."""
    for document in json.loads((ROOT / "tests/golden/writers-0.1.0.json").read_text()):
        again = RingWriter.from_dict(document["writer"]).to_dict()
        assert json.loads(json.dumps(again)) == document["writer"]
        for part, cls in (("ring", RingState), ("head", HeadBlock)):
            if part in document:
                again = json.loads(json.dumps(to_json(from_json(cls, document[part]))))
                assert again == document[part]


def test_every_attribute_is_handed_over(make_log: MakeLog) -> None:
    """The format has exactly the attributes of each handed-over class."""
    for cls in (Drawing, FrameQueue, Gap, HeadBlock, Pace, Redraw, Row, Rows, Samples, Screen):
        fields = {field.name for field in dataclasses.fields(cls) if field.init}
        assert set(_TAGS[cls].attributes.values()) == fields, cls
        assert fields == set(cls.__slots__) - {"ring"}, cls
    log = make_log()
    log.feed(STDOUT, b"line\n")
    assert set(_TAGS[RingWriter].attributes.values()) == vars(log.writer).keys() - {"blocks"}
    blocks = vars(log.writer.blocks).keys() - {*OF_THE_RING, "streams", "reserve_open"}
    assert set(_TAGS[BlockWriter].attributes.values()) == blocks
    assert set(_TAGS[StreamState].attributes.values()) == set(StreamState.__slots__) - {"number"}
    ring = vars(log.writer.blocks.ring).keys() - set(OF_THE_FILE)
    assert {name.removeprefix("_") for name in ring} == {field.name for field in dataclasses.fields(RingState)}
    assert set(MaskState.__dataclass_fields__) == {name.removeprefix("_") for name in Mask.__slots__}


@tagged("Box", "size")
@dataclass
class Old:
    size: int


@tagged("Box", "size=size_bytes")
@dataclass
class New:
    """The later version of the class: renamed, with a renamed attribute."""

    size_bytes: int


@dataclass
class OldRecord:
    box: Old


@dataclass
class NewRecord:
    """The later version, with a new field."""

    box: New
    colour: str = "red"


def test_renaming_keeps_the_format() -> None:
    """A renamed class, a renamed attribute and a later field are read from an older table."""
    new = from_json(NewRecord, json.loads(json.dumps(to_json(OldRecord(Old(7))))))
    assert (type(new.box), new.box.size_bytes, new.colour) == (New, 7, "red")
    assert from_json(OldRecord, json.loads(json.dumps(to_json(new)))) == OldRecord(Old(7))
    new.colour = "blue"
    with pytest.raises(UnknownFormat, match="OldRecord has the unknown fields colour"):
        from_json(OldRecord, json.loads(json.dumps(to_json(new))))
