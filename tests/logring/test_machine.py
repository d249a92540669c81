"""After any events in any order, a log equals a plain list of lines."""

import os
import tempfile
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, precondition, rule

from tests.logring.support.machine import World
from tests.logring.support.steps import CHUNKS, STREAMS

EXAMPLES = int(os.environ.get("LOGRING_EXAMPLES", "80"))
"""A long run sets more."""

ANCHORS = st.integers(-300, 300)
LIMITS = st.integers(1, 500)
BYTES = st.sampled_from([1, 100, 5000, 1 << 20])


class LogMachine(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.directory = tempfile.TemporaryDirectory()
        self.made = 0
        self.world: World | None = None

    @initialize(
        blocks=st.integers(1, 3),
        block_size=st.sampled_from([4096, 8192, 16384]),
        file_blocks=st.sampled_from([0, 1, 2, 5, 1000]),
    )
    def begin(self, blocks: int, block_size: int, file_blocks: int) -> None:
        self.arguments = blocks, block_size, file_blocks
        self.another()

    def another(self) -> None:
        """Begin the log of the next run."""
        if self.world is not None:
            self.world.close()
        blocks, block_size, file_blocks = self.arguments
        path = Path(self.directory.name) / str(self.made)
        self.made += 1
        self.world = World(path, blocks=blocks, block_size=block_size, file_blocks=file_blocks)

    @property
    def now(self) -> World:
        assert self.world is not None
        return self.world

    @rule(stream=STREAMS, data=CHUNKS)
    def program_prints(self, stream: int, data: bytes) -> None:
        self.now.print(stream, data)

    @rule()
    def another_program_goes_on(self) -> None:
        self.now.log.carry_over()

    @rule(stream=STREAMS, data=CHUNKS)
    def text_is_appended(self, stream: int, data: bytes) -> None:
        if not self.now.queued[stream]:
            self.now.append(stream, data)

    @rule()
    def system_line(self) -> None:
        self.now.system_line()

    @rule(later=st.sampled_from([1, 7, 1000, 2**33, -3, -5000]))
    def time_passes(self, later: int) -> None:
        self.now.now_ms += later

    @rule(unfinished=st.booleans())
    def file_thread_writes(self, unfinished: bool) -> None:
        self.now.file_thread(unfinished=unfinished)

    @rule()
    def unfinished_lines_are_mirrored(self) -> None:
        self.now.mirror()

    @rule(after=st.one_of(st.none(), st.integers(0, 4)))
    def disk_fills_or_recovers(self, after: int | None) -> None:
        self.now.disk_fills(after)

    @rule(steps=st.frozensets(st.sampled_from(["first", "table", "slot", "pending", "region"])))
    def memory_is_short_or_not(self, steps: frozenset[str]) -> None:
        self.now.memory_is_short(steps)

    @precondition(lambda self: self.world is not None and len(self.world.cursors) < 4)
    @rule(anchor=ANCHORS)
    def reader_begins(self, anchor: int) -> None:
        self.now.open_cursor(anchor)

    @precondition(lambda self: self.world is not None and self.world.cursors)
    @rule(which=st.integers(0, 3), limit=LIMITS, max_bytes=BYTES)
    def reader_goes_on(self, which: int, limit: int, max_bytes: int) -> None:
        cursors = self.now.cursors
        self.now.read(cursors[which % len(cursors)], limit, max_bytes)

    @precondition(lambda self: self.world is not None and self.world.cursors)
    @rule(which=st.integers(0, 3), anchor=ANCHORS)
    def reader_jumps(self, which: int, anchor: int) -> None:
        cursor = self.now.cursors[which % len(self.now.cursors)]
        cursor.position = cursor.reader.resolve(anchor)

    @rule()
    def everything_is_looked_at(self) -> None:
        self.now.look()

    @rule()
    def run_ends(self) -> None:
        self.now.seal()
        self.another()

    @rule(action=st.integers(0, 5), stream=STREAMS, data=CHUNKS, after=st.integers(1, 400))
    def writer_is_killed(self, action: int, stream: int, data: bytes, after: int) -> None:
        self.now.kill(self._action(action, stream, data), after)
        self.another()

    @rule(action=st.sampled_from([2, 3, 5]), stream=STREAMS, data=CHUNKS)
    def writer_is_killed_while_it_writes_to_the_disk(self, action: int, stream: int, data: bytes) -> None:
        self.now.kill_in_write(self._action(action, stream, data))
        self.another()

    @rule()
    def disk_syncs(self) -> None:
        self.now.disk_syncs()

    @rule(seed=st.integers(0, 1 << 16))
    def power_fails(self, seed: int) -> None:
        self.now.lose_power(seed)
        self.another()

    def _action(self, action: int, stream: int, data: bytes) -> Callable[[], None]:
        now = self.now
        actions: tuple[Callable[[], None], ...] = (
            lambda: now.print(stream, data),
            lambda: now.append(stream, b"" if now.queued[stream] else data),
            lambda: now.file_thread(unfinished=False),
            lambda: now.file_thread(unfinished=True),
            now.mirror,
            now.seal,
        )
        return actions[action]

    def teardown(self) -> None:
        if self.world is not None:
            self.world.close()
        self.directory.cleanup()


# A writer killed between two statements leaves its descriptors open.
pytestmark = pytest.mark.filterwarnings("ignore:unclosed file:ResourceWarning")
TestLog = LogMachine.TestCase
TestLog.settings = settings(
    max_examples=EXAMPLES,
    stateful_step_count=40,
    deadline=None,
    suppress_health_check=list(HealthCheck),
    report_multiple_bugs=False,
)
