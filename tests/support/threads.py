"""Threads that fail."""

import contextlib
from collections.abc import Iterator

import pytest

from supervisor.host.detached_thread import DetachedThread


@contextlib.contextmanager
def no_memory_for_threads() -> Iterator[None]:
    """Let threads start that have no memory to call their function."""

    def fail(*_arguments: object) -> None:
        raise MemoryError

    reported: list[object] = []
    threads: list[DetachedThread] = []
    create = DetachedThread.__init__

    def keep(self: DetachedThread, *arguments: object) -> None:
        create(self, *arguments)  # type: ignore[arg-type]
        threads.append(self)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(
            "sys.unraisablehook", lambda failed: reported.append(failed.exc_type)
        )  # no frame, which the thread keeps
        patch.setattr(DetachedThread, "_run", fail)
        patch.setattr(DetachedThread, "__init__", keep)
        yield
        while any(thread.running for thread in threads):
            threads[0].wait(0.01)
    assert reported
