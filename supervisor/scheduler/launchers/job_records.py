"""What is kept of each run that was started through a launcher: how to end its job, and how to look for it.

A file each (:mod:`.run_files`), written before the run is started, and removed after its end was stored: so a daemon
whose predecessor was killed can end what still runs elsewhere, also when the configuration has changed. Values of
secrets are not in it; they come from the configuration.
"""

import os
from collections.abc import Collection
from dataclasses import asdict, dataclass
from typing import Any

from supervisor.config.model import Launcher
from supervisor.config.value_types.launchers import PLACEHOLDER
from supervisor.host import users
from supervisor.scheduler.launchers import launcher_commands
from supervisor.scheduler.loop.user_lookup import Identity
from supervisor.scheduler.runs import unstored_files
from supervisor.scheduler.runs.live_units import LiveRun

_FOLDER = "launches"


@dataclass(frozen=True)
class Launch:
    """How the job of one run is ended and looked for: commands of the launcher, and who executes them where."""

    daemon: str
    """Id of the data directory; in a copy of that, it is another one's job."""
    launcher: str
    """Its name."""
    stop: list[str]
    """Empty: there is no such command; the same holds for `probe`."""
    probe: list[str]
    env: dict[str, str]
    secrets: list[str]
    """Names of further variables."""
    user: str | None
    clean_env: bool
    cwd: str | None
    umask: int | None

    def environment(self, run: LiveRun, identity: Identity, private: Collection[str]) -> dict[str, str]:
        """All variables of a command; `private`: those of the daemon that it does not get."""
        base = {name: text for name, text in os.environ.items() if name not in private}
        known = run.definition.secrets
        return {
            **({"PATH": users.CLEAN_PATH} if self.clean_env else base),
            **identity.variables,
            **self.env,
            **{name: known[name] for name in self.secrets if name in known},
        }


def launch_of(launcher: Launcher, run: LiveRun, daemon_id: str) -> Launch:
    """What has to be kept of a run that is about to be started."""
    definition = run.definition
    known = launcher_commands.facts(definition, run.id, run.instance, run.attempt)
    named = {name for word in launcher.start for name in PLACEHOLDER.findall(word)}
    own = {"RINGWARD_RUN_ID": run.id, "RINGWARD_TASK": definition.name, "RINGWARD_INSTANCE": str(run.instance)}
    travels = launcher.feed == "script" or "working_dir" in named
    return Launch(
        daemon=daemon_id,
        launcher=launcher.name,
        stop=launcher_commands.words(launcher.stop, known),
        probe=launcher_commands.words(launcher.probe, known),
        env={**definition.env, **own},
        secrets=list(definition.secrets),
        user=None if "user" in named else definition.user,
        clean_env=definition.clean_env,
        cwd=None if travels else definition.working_dir,
        umask=definition.umask,
    )


def keep(data_dir: str, run_id: str, launch: Launch) -> None:
    """Write it.

    Raises:
        OSError: it cannot be written.
    """
    unstored_files.keep(f"{data_dir}/{_FOLDER}", run_id, asdict(launch))


def read(data_dir: str, run_id: str, daemon_id: str) -> Launch | None:
    """What is kept of a run; None when nothing is, or another daemon or version kept it."""
    found: Any = unstored_files.read(f"{data_dir}/{_FOLDER}", run_id)
    try:
        launch = None if found is None else Launch(**found)
    except TypeError:
        return None
    return launch if launch is not None and launch.daemon == daemon_id else None


def forget(data_dir: str, run_id: str) -> None:
    """Remove what is kept of a run."""
    unstored_files.forget(f"{data_dir}/{_FOLDER}", run_id)


def sweep(data_dir: str, living: Collection[str]) -> None:
    """Remove what is kept of all runs but these."""
    unstored_files.sweep(f"{data_dir}/{_FOLDER}", living)
