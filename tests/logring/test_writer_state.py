"""A writer that is handed over to another program continues unchanged."""

import errno
import json
import os
from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from logring.errors import Corrupt
from logring.format_table import Schema, Shape, UnknownFormat, fields
from logring.layout import STDERR, STDOUT
from logring.reader import LogReader
from logring.redraw.reducer import Redraw
from logring.ring.ring import Ring
from logring.ring.writer import RingWriter
from logring.writer_state import RING, SCHEMA, WRITER, dump, in_a_new_file, load
from tests.logring.redraw.test_reducer_properties import hostile
from tests.logring.support.reducing import pieces
from tests.logring.support.rings import Log, texts

MakeLog = Callable[..., Log]
OF_THE_RING = ("ring", "_mm", "_view", "_head")
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
        there = SCHEMA.from_json(json.loads(json.dumps(SCHEMA.to_json(there))))
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
    dropped = log.writer.dropped
    log.carry_over()
    log.feed(STDOUT, line * 10)
    log.carry_over()
    assert log.writer.dropped == dropped + 10
    log.finish()
    (said,) = log.reader.read(log.reader.head().lines - 1, 1).lines
    assert said.text.startswith(b"%d lines (%d bytes) dropped" % (dropped + 10, 100 * (dropped + 10)))


def test_removed_ring(make_log: MakeLog) -> None:
    """A new file gets all contents of a removed ring, takes no more memory, and is used from then on."""
    log = make_log()
    log.feed(STDOUT, b"".join(b"line %d\n" % number for number in range(20_000)) + b"half ")
    log.writer.mirror_pending()
    before = os.stat(log.writer.path)
    os.unlink(log.writer.path)
    log.writer = in_a_new_file(log.writer)
    after = os.stat(log.writer.path)
    assert (after.st_size, after.st_mode) == (before.st_size, before.st_mode)
    assert after.st_ino != before.st_ino
    assert after.st_blocks <= before.st_blocks
    log.feed(STDOUT, b"a line\n")
    reader = LogReader(log.writer.path, None)
    assert reader.head().lines == 20_001
    assert texts(reader.read(19_999, 2).lines) == [b"line 19999", b"half a line"]
    reader.close()


def test_removed_ring_without_memory(make_log: MakeLog, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without shared memory for the copy, the writer continues as before and leaves no file."""
    log = make_log()
    log.feed(STDOUT, b"one\n")
    os.unlink(log.writer.path)

    def no_room(step: str, *_: object) -> None:
        raise OSError(errno.ENOSPC, step)

    with monkeypatch.context() as patch:
        patch.setattr("logring.ring.ring.fallocate", no_room)
        with pytest.raises(OSError, match="copy"):
            in_a_new_file(log.writer)
    assert not os.path.exists(log.writer.path)
    log.writer = in_a_new_file(log.writer)
    log.feed(STDOUT, b"two\n")
    assert log.writer.lines == 2


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
    assert not log.writer.created
    log.feed(STDOUT, b"first\n")
    log.finish()
    assert texts(log.lines()) == [b"first"]


@pytest.mark.parametrize("fewer", [False, True])
@pytest.mark.parametrize(("part", "attribute"), [("writer", "_bytes"), ("ring", "taken"), ("head", "fill")])
def test_other_attributes_are_refused(make_log: MakeLog, part: str, attribute: str, fewer: bool) -> None:
    """State of another version, with more or fewer attributes, is refused instead of guessed at."""
    log = make_log()
    log.feed(STDOUT, b"line\n")
    document = json.loads(json.dumps(dump(log.writer, lambda fd: fd)))
    inside = document[part]["HeadBlock"] if part == "head" else dict(document[part]["dict"])
    if fewer:
        del inside[attribute]
    else:
        inside["more"] = 1
    if part != "head":
        document[part] = {"dict": list(inside.items())}
    with pytest.raises(UnknownFormat, match=attribute if fewer else "more"):
        load(document)


def test_damaged_ring_is_refused(make_log: MakeLog) -> None:
    """A ring whose beginning is damaged is refused."""
    log = make_log()
    log.feed(STDOUT, b"line\n")
    log.writer.ring.mm[200] ^= 0xFF
    with pytest.raises(Corrupt):
        load(json.loads(json.dumps(dump(log.writer, lambda fd: fd))))


def test_unknown_classes_are_refused() -> None:
    """Unknown classes are refused both when state is written and when it is read."""
    schema = Schema(())
    with pytest.raises(TypeError, match="Redraw"):
        schema.to_json([Redraw(full=True)])
    with pytest.raises(UnknownFormat, match="Redraw"):
        schema.from_json({"Redraw": {}})


def test_every_attribute_is_handed_over(make_log: MakeLog) -> None:
    """The format has exactly the attributes of each handed-over class."""
    for shape in SCHEMA.shapes:
        own = {name for base in shape.cls.__mro__ for name in getattr(base, "__slots__", ())} - {"ring"}
        assert {field.attribute for field in shape.fields} == (own or {"frames"}), shape.name
    log = make_log()
    log.feed(STDOUT, b"line\n")
    assert {field.attribute for field in WRITER} == vars(log.writer).keys() - set(OF_THE_RING)
    assert {field.attribute for field in RING} == vars(log.writer.ring).keys() - set(OF_THE_FILE)
    assert isinstance(log.writer, RingWriter)
    assert isinstance(log.writer.ring, Ring)


class Old:
    __slots__ = ("size",)

    def __init__(self, size: int) -> None:
        self.size = size


class New:
    """The later version of the class: renamed, with a renamed attribute and a new one."""

    __slots__ = ("colour", "size_bytes")


def test_renaming_keeps_the_format() -> None:
    """A renamed class, a renamed attribute and a later field are read from an older table."""
    old = Schema([Shape(Old, "Box", fields("size"))])
    new = Schema([Shape(New, "Box", fields("size", renamed={"size": "size_bytes"}, later={"colour": lambda: "red"}))])
    box = new.from_json(json.loads(json.dumps(old.to_json(Old(7)))))
    assert (type(box), box.size_bytes, box.colour) == (New, 7, "red")
    with pytest.raises(UnknownFormat, match="Box has the unknown fields colour"):
        old.from_json(json.loads(json.dumps(new.to_json(box))))
