"""A replacement for the daemon's Python that makes its root fail as planned.

    faulty.py PLAN -I -m ringward root ARGUMENTS            on SIGUSR1 the named thread raises an error
    faulty.py PLAN -I -m ringward root --check ARGUMENTS    a trial of the version, which hangs
    faulty.py PLAN -I -m ringward PROCESS ARGUMENTS                   unchanged

PLAN is a file with the name of the thread (control, pump, file), or with the time at which a trial hangs: early (before
it has done anything) or late. A hanging trial writes its pid to PLAN.hangs. Production code knows nothing of this.
"""

import os
import signal
import sys
from collections.abc import Callable
from typing import Any, NoReturn

from ringward import run


def _defect() -> NoReturn:
    raise RuntimeError("a defect, as planned")


def _hang(path: str) -> NoReturn:
    with open(f"{path}.new", "w", encoding="utf-8") as file:
        file.write(str(os.getpid()))
    os.replace(f"{path}.new", f"{path}.hangs")
    while True:
        signal.pause()


def _plan(path: str) -> str:
    with open(path, encoding="utf-8") as file:
        return file.read()


def fail(path: str) -> None:
    """Make a thread of this root raise an error on SIGUSR1."""
    from supervisor.root.loop.control_thread import ControlThread

    whole = ControlThread._on_signals

    def on_signals(control: Any, numbers: set[int]) -> None:
        if signal.SIGUSR1 in numbers:
            threads: dict[str, Callable[[Callable[[], None]], None]] = {
                "control": lambda meet: meet(),
                "pump": control._pump.hold,
                "file": control._pump.files.hold,
            }
            threads[_plan(path)](_defect)
        whole(control, numbers)

    ControlThread._on_signals = on_signals  # type: ignore[assignment, method-assign]


def main() -> None:
    plan, _, _, _, process, *arguments = sys.argv[1:]
    if process == "root":
        sys.executable = os.environ["FAULTY_PYTHON"]
        if "--check" not in arguments:
            fail(plan)
        elif _plan(plan) == "early":
            _hang(plan)
        else:
            from supervisor.root.handover.inherited_state import InheritedState

            InheritedState.load = lambda _fd: _hang(plan)  # type: ignore[assignment, method-assign]
    sys.argv = [process, *arguments]
    sys.exit(run(process))


if __name__ == "__main__":
    main()
