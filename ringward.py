"""The program: ``python -m ringward ARGUMENTS`` is the command line, ``python -I -m ringward PROCESS`` one process.

An installation has this file and a folder ``ringward`` beside it, which holds the packages of Ringward. The folder is
not a package itself, so other programs that share the environment cannot import ``api`` or ``supervisor`` from it, and
may have packages of these names. In a checkout the packages are beside this file, and the folder does not exist.

The directory of the packages becomes the first entry of ``sys.path``, before any installed package of the same name.
"""

import gc
import os
import sys
from importlib import import_module

PROCESSES = {
    "root": "supervisor.root.__main__",
    "spawner": "supervisor.root.spawn.zygote",
    "scheduler": "supervisor.scheduler.__main__",
    "watcher": "supervisor.helpers.watcher.__main__",
    "filewatcher": "supervisor.helpers.filewatcher.__main__",
    "janitor": "supervisor.helpers.janitor.__main__",
    "notifier": "supervisor.helpers.notifier.__main__",
    "exporter": "supervisor.helpers.exporter.__main__",
    "api": "api.serve",
    "api-document": "api.openapi",
}
"""The module of each process. A root of one version starts processes of the next, so the names stay."""
_CHECKED_BY_THEMSELVES = ("scheduler", "api")
"""Processes that do more for ``--check`` than load their modules."""

_FOLDER, _ = os.path.splitext(os.path.abspath(__file__))
sys.path.insert(0, _FOLDER if os.path.isdir(os.path.join(_FOLDER, "supervisor")) else os.path.dirname(_FOLDER))


def main() -> None:
    """Entry point of the console script."""
    from supervisor.cli.entry import main as command_line

    command_line()


def run(process: str) -> int | None:
    """Be one of the processes, with its arguments in ``sys.argv``; return the exit status."""
    gc.disable()  # what an import creates stays alive, so collections meanwhile would only take time
    module = import_module(PROCESSES[process])
    gc.enable()
    if sys.argv[1:] == ["--check"] and process not in _CHECKED_BY_THEMSELVES:
        return 0
    status: int | None = module.main()
    return status


if __name__ == "__main__":
    if sys.argv[1:2] and sys.argv[1] in PROCESSES:
        sys.exit(run(sys.argv.pop(1)))
    main()
