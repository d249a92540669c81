"""Orders to start something, and what the root hears of them beforehand.

A run starts only when the store has it. What the root has to do before, it does in that time.
"""

from logring.paths import log_path
from supervisor.ipc.messages import Boot, Frame, spawn_message
from supervisor.scheduler.database.commits import Committer
from supervisor.scheduler.loop.root_connection import RootLink
from supervisor.scheduler.loop.user_lookup import NOBODY_ELSE
from supervisor.scheduler.runs.live_units import LiveRun, spawn_of
from supervisor.scheduler.runs.run_access import RunAccess
from supervisor.scheduler.runs.run_rows import origin_of


class Prospects:
    """Starts runs."""

    def __init__(self, boot: Boot, root: RootLink, committer: Committer) -> None:
        self._boot = boot
        self._root = root
        self._committer = committer
        self._announced: tuple[LiveRun, Frame] | None = None

    def announce(self, run: LiveRun) -> None:
        """A run is going to start as soon as a change is stored that is about to be committed.

        Where many start nothing is announced: while one is stored, others are started. Nor is what has to be looked up.
        """
        definition = run.definition
        if not self._committer.idle or definition.user is not None or definition.clean_env or definition.launcher:
            return
        run.identity = NOBODY_ELSE
        spawn = self._spawn(run)
        self._announced = run, spawn
        self._root.send({"op": "prepare", "spawn": spawn})

    def start(self, run: LiveRun) -> None:
        """Order the start of a run, whose identity is known."""
        announced, self._announced = self._announced, None
        if announced is not None and announced[0] is run and run.identity == NOBODY_ELSE:
            spawn = announced[1]
        else:
            spawn = self._spawn(run)
        self._root.send({"op": "spawn", "spawn": spawn})

    def _spawn(self, run: LiveRun) -> Frame:
        log = log_path(self._boot.data_dir, run.unit.name, run.id)
        spawn = spawn_of(run, self._boot.daemon_id, log, origin_of(run), RunAccess.of(self._boot))
        return spawn_message(spawn, self._root.protocol)
