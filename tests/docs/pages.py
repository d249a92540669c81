"""The pages whose commands are run, and the environment of their reader."""

import shutil
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.docs.blocks import Block, blocks
from tests.docs.session import CONFIG, OWN_TABLE, Session, Shown, unscheduled
from tests.support.daemon import RINGWARD
from tests.support.paths import ROOT
from tests.support.ports import free_port
from tests.support.waiting import until

README = ROOT / "README.rst"
PAGES = [README, ROOT / "CONTRIBUTING.rst", *sorted((ROOT / "docs").rglob("*.rst"), key=lambda page: page.name)]
PROGRAMS = frozenset({"ringward", "curl", "echo", "cat", "ls", "export", ".", "eval", "mkdir", "touch", "chmod"})
"""The allowed first words of commands: no page changes the host of the test."""


def is_run(block: Block) -> bool:
    """Return whether the block's commands are run."""
    return block.language == "console" and block.not_run is None


@contextmanager
def read_by(daemon: Shown, page: Path) -> Iterator[tuple[Session, Iterator[Block]]]:
    """Yield a session with each block of commands of a page; the session has the files before the block."""
    if page == README:
        session = _with_examples(daemon)
    else:
        daemon.write("")
        daemon.start()
        session = Session(daemon, {})
    try:
        yield session, _carried_out(session, page)
    finally:
        session.close()
        daemon.take_back()


def _carried_out(session: Session, page: Path) -> Iterator[Block]:
    for block in blocks(page):
        if block.file is not None:
            session.has(block.file, block.text)
        elif block.added_to is not None:
            session.adds(block.added_to, block.text)
        elif is_run(block):
            yield block


def _with_examples(daemon: Shown) -> Session:
    """Imitate ``make run`` and the environment that it creates; the daemon's directory represents the clone."""
    port = free_port()
    text = (ROOT / "examples" / CONFIG).read_text().replace(OWN_TABLE, "")
    for shown, ours in (
        ("8765", str(port)),
        ("/usr", "scripts"),  # the size of /usr varies
        ('"--within", "2"', '"--within", "60"'),
        ('timeout = "15s"', 'timeout = "5m"'),
    ):
        assert shown in text, shown
        text = text.replace(shown, ours)
    daemon.begin(unscheduled(text), ROOT / "examples/scripts")
    until(lambda: _listens(port), "the web server")
    until(lambda: _has_each_worked(daemon), "each worker to have done a job")
    (daemon.directory / ".venv").symlink_to(RINGWARD.parents[1])
    (daemon.directory / "examples").mkdir()
    shutil.copy(daemon.config, daemon.directory / "examples")
    return Session(daemon, {"8765": port})


def _listens(port: int) -> bool:
    with socket.socket() as sock:
        return sock.connect_ex(("127.0.0.1", port)) == 0


def _has_each_worked(daemon: Shown) -> bool:
    """Return whether each worker has done a job; if not, create more jobs."""
    texts = [daemon.texts(run["id"]) for run in daemon.runs("queue")]
    if all(any(" done in " in text for text in block_text) for block_text in texts):
        return True
    producer = [sys.executable, "scripts/producer.py", "data/work", "--jobs", "3"]
    subprocess.run(producer, cwd=daemon.directory, capture_output=True, check=True)
    return False
