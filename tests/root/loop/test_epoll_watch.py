import os
import select

import pytest

from supervisor.host.clock import Wakeup
from supervisor.root.loop.epoll_watch import EpollWatch


def test_event_of_a_reused_descriptor() -> None:
    """If a handler closes a descriptor and opens one with the same number, the new one gets no event of the old one."""
    watch = EpollWatch()
    pipes = [os.pipe(), os.pipe()]
    called: list[str] = []

    def first(other: int) -> None:
        called.append("first")
        watch.remove(other)
        quiet, _ = os.pipe()
        os.dup2(quiet, other)
        watch.add(other, lambda _mask: called.append("successor"))

    (old_end, one_end), (two, two_end) = pipes
    watch.add(old_end, lambda _mask: first(two))
    watch.add(two, lambda _mask: first(old_end))
    os.write(one_end, b"x")
    os.write(two_end, b"x")
    watch.round(0)
    assert called == ["first"]


def test_long_waits() -> None:
    """Waits of more than 24.8 days do not overflow."""
    watch = EpollWatch()
    end, other_end = os.pipe()
    os.close(other_end)
    watch.add(end, lambda _mask: watch.remove(end))
    watch.round(1e9)
    os.close(end)


@pytest.mark.parametrize(("cleared", "woken"), [(False, True), (True, False)])
def test_held_wakeup(cleared: bool, woken: bool) -> None:
    """A held wakeup fires when it is released, unless it was cleared meanwhile; later ones fire at once."""
    wakeup = Wakeup()
    poll = select.poll()
    poll.register(wakeup, select.POLLIN)
    wakeup.hold()
    wakeup.set()
    assert not poll.poll(0)
    if cleared:
        wakeup.clear()
    wakeup.release()
    assert bool(poll.poll(0)) == woken
    wakeup.clear()
    assert not poll.poll(0)
    wakeup.set()
    assert poll.poll(0)
    wakeup.close()
