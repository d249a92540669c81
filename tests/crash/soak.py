"""The arguments of the long runs, and their daemon, which a service manager may keep descriptors for."""

import argparse
import os
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest

from tests.support.daemon import Daemon
from tests.support.manager import Managed, Manager


def soak_parser(description: str | None) -> argparse.ArgumentParser:
    """Return a parser for the length of a run in seconds, its seed, and its service manager."""
    parser = argparse.ArgumentParser(description=description, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("seconds", type=float)
    parser.add_argument("seed", type=int, nargs="?", default=int.from_bytes(os.urandom(4)))
    parser.add_argument("--descriptor-store", action="store_true", help="run under a fake service manager that has one")
    return parser


@contextmanager
def soaked_daemon(directory: Path, *, descriptor_store: bool) -> Iterator[Daemon]:
    """Yield a daemon, and remove all its processes and directories afterwards."""
    with ExitStack() as stack:
        if descriptor_store:
            manager = Manager()
            stack.callback(manager.close)
            daemon: Daemon = Managed(directory, manager)
        else:
            daemon = Daemon(directory)
        stack.callback(daemon.clean)
        yield daemon


@contextmanager
def service_manager(*, descriptor_store: bool) -> Iterator[None]:
    """Give each daemon that starts meanwhile a descriptor store. None of them may need its descriptors back."""
    if not descriptor_store:
        yield
        return
    manager = Manager()
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("NOTIFY_SOCKET", manager.address)
        try:
            yield
        finally:
            manager.close()
