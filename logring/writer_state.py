"""The state of a writer as plain values, which the process hands over to a new program across execve.

The state is complete, including output that no reader has seen yet: unfinished lines, text held back as a possible
secret, a progress bar that is being drawn, frames on their way to the disk. The ring stays in place; its descriptor is
inherited. The tables here define the format (see :mod:`logring.format_table`).
"""

from collections.abc import Callable
from typing import Any

from logring.format_table import Schema, Shape, attributes_of, fields, values_of
from logring.layout import RingShape
from logring.mask import Mask
from logring.redraw.pacing import Pace
from logring.redraw.redraw_writer import Drawing, FrameQueue, LineEnd
from logring.redraw.reducer import Redraw
from logring.redraw.row_cells import Row
from logring.redraw.sampling import Samples
from logring.redraw.screen import Screen
from logring.redraw.unsettled_rows import Rows
from logring.ring.dropped_lines import Gap
from logring.ring.open_block import HeadBlock
from logring.ring.ring import Ring
from logring.ring.writer import RingWriter

SCHEMA = Schema(
    (
        Shape(Drawing, "Drawing", fields("_full _mask _newline _pace _redraw")),
        Shape(FrameQueue, "FrameQueue", fields("_added _items _taken _told", renamed={"_told": "_was_pressing"})),
        Shape(Gap, "Gap", fields("_room bytes inside lines notes reason")),
        Shape(
            HeadBlock,
            "HeadBlock",
            fields(
                "_reserve at base_ms ceiling_ms entries fill first_line flags floor_ms last_delta last_flags"
                " last_frames last_stream limit lines number start"
            ),
        ),
        Shape(LineEnd, "LineEnd", fields("frames")),
        Shape(Mask, "Mask", fields("_begun _held _secrets count")),
        Shape(Pace, "Pace", fields("_last_ms _tokens")),
        Shape(Redraw, "Redraw", fields("_above _full _known _out _owes_pen _pen _raw _redrawn _samples _screen")),
        Shape(Row, "Row", fields("_rendered cells pens touched wrapped")),
        Shape(
            Rows,
            "Rows",
            fields(
                "_above _added _block _bottom _redraws _rows _samples _top closed margins over_picture row samples_left"
                " settled"
            ),
        ),
        Shape(Samples, "Samples", fields("_count _frames _size _stride")),
        Shape(Screen, "Screen", fields("_column _in_string _rows _saved pen")),
    )
)
WRITER = fields(
    "_backlog _blocks _bytes _continued _create_at_ms _drawings _first_line _lines_long _live _masks _max_line"
    " _min_room _open _policy _published_first _published_lines _region _region_epoch _resumed _seal_ms _seal_wanted"
    " _seq _starts _swallow _tail_ms _tails _unmirrored block_size closed_blocks created dropped file_blocks"
    " first_available frames gap head_block lines overflowed path place_error run_id sealed shortage written_blocks"
)
RING = fields("_pending_have _pending_seq _region_have _region_seq block_size slots table_have taken text_have")

Keep = Callable[[int], int]
"""Registers a descriptor to be inherited, and returns it."""


def dump(writer: RingWriter, keep: Keep) -> dict[str, object]:
    """Return the complete state of an idle writer, which stays usable."""
    state: dict[str, object] = {"writer": SCHEMA.to_json(values_of(writer, WRITER))}
    if writer.created:
        ring = writer.ring
        state["fd"] = keep(ring.fd)
        state["ring"] = SCHEMA.to_json(values_of(ring, RING))
        state["head"] = SCHEMA.to_json(writer.open_block)
    return state


def load(state: dict[str, Any]) -> RingWriter:
    """Restore a writer from the state that :func:`dump` returned in another program. Nothing is written.

    Raises:
        UnknownFormat: the state has a format that this version does not know.
        OSError: the ring cannot be mapped.
        LogError: the file is not a ring.
    """
    values = attributes_of("the writer", SCHEMA.from_json(state["writer"]), WRITER)
    writer = RingWriter(values["path"], values["run_id"], RingShape(0, values["_blocks"], values["block_size"]))
    _set(writer, values)
    if writer.created:
        ring = Ring.adopt(writer.path, state["fd"])
        _set(ring, attributes_of("the ring", SCHEMA.from_json(state["ring"]), RING))
        writer.adopt(ring, SCHEMA.from_json(state["head"]))
    return writer


def in_a_new_file(writer: RingWriter) -> RingWriter:
    """Replace a writer whose ring was removed from its path, and close the old writer.

    The new ring has the whole content of the old one. The old writer must be idle during the call.

    Raises:
        OSError: the ring cannot be recreated; the old writer is unchanged.
    """
    state = dump(writer, lambda fd: fd)
    new = load({**state, "fd": writer.ring.copied_file(writer.path)})
    writer.close()
    return new


def _set(target: object, values: dict[str, object]) -> None:
    for name, value in values.items():
        setattr(target, name, value)
