"""A writer that outlives the program: taken down to plain values, and taken up where the process is executed anew.

Everything of it goes along, also what no reader has seen yet: unfinished lines, what is held back because a secret
could begin there, a progress bar that is being drawn, frames on their way to the disk. The ring stays where it is; its
descriptor is inherited.
"""

from collections.abc import Callable
from typing import Any

from logring.cells import Row
from logring.drawing import Drawing, FrameQueue, LineEnd
from logring.flood import Pace
from logring.gap import Gap
from logring.head import HeadBlock
from logring.mask import Mask
from logring.plain import Plain, same_names
from logring.redraw import Redraw
from logring.ring import Ring
from logring.rows import Rows
from logring.sampling import Samples
from logring.terminal import Screen
from logring.writer import RingWriter

_PLAIN = Plain(
    {
        Drawing: (),
        FrameQueue: (),
        Gap: (),
        HeadBlock: ("ring",),
        LineEnd: (),
        Mask: (),
        Pace: (),
        Redraw: (),
        Row: (),
        Rows: (),
        Samples: (),
        Screen: (),
    }
)
_OF_THE_RING = ("ring", "_mm", "_view", "_head")
_OF_THE_FILE = ("path", "static", "mm", "fd")

Keep = Callable[[int], int]
"""Takes note of a descriptor that has to be inherited, and returns it."""


def take_down(writer: RingWriter, keep: Keep) -> dict[str, Any]:
    """All of a writer, which nobody uses meanwhile; it can be used afterwards."""
    found: dict[str, Any] = {
        "writer": _PLAIN.down({name: value for name, value in vars(writer).items() if name not in _OF_THE_RING})
    }
    if writer.created:
        ring = writer.ring
        found["fd"] = keep(ring.fd)
        found["ring"] = _PLAIN.down({name: value for name, value in vars(ring).items() if name not in _OF_THE_FILE})
        found["head"] = _PLAIN.down(vars(writer)["_head"])
    return found


def take_up(found: dict[str, Any]) -> RingWriter:
    """The writer that was taken down, in another program. Nothing is written.

    Raises:
        Foreign: another version took it down.
        OSError: the ring cannot be mapped.
        LogError: it is no ring of ours.
    """
    values = _PLAIN.up(found["writer"])
    writer = RingWriter(
        values["path"], values["run_id"], blocks=values["_blocks"], block_size=values["block_size"], file_blocks=0
    )
    inside = vars(writer)
    same_names("RingWriter", values, inside)
    inside.update(values)
    if writer.created:
        ring = Ring.adopt(writer.path, found["fd"])
        values = _PLAIN.up(found["ring"])
        same_names("Ring", values, vars(ring).keys() - set(_OF_THE_FILE))
        vars(ring).update(values)
        head = _PLAIN.up(found["head"])
        head.ring = ring
        inside.update(ring=ring, _mm=ring.mm, _view=memoryview(ring.mm), _head=head)
    return writer
