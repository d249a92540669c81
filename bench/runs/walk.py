"""``python -m bench.runs.walk [--list]``: through how many modules one trigger and one exit pass, in all processes.

Runs are triggered over HTTP, and later exit. Each process of the daemon records its calls. What an idle daemon calls as
well does not count, nor what happens for some of the runs only. For both ways, the table shows for each process:

* modules: modules of Ringward with a function that was called
* encodings: values that were turned into JSON, by msgspec or the standard library
* decodings: values that were read from JSON, or checked against a type
* structs: packed and unpacked binary records, such as the lengths of messages
* transactions: transactions in which the scheduler stored changes

``--list`` also prints the modules, and where values are coded.
"""

import argparse
import functools
import mmap
import operator
import os
import site
import sys
import tempfile
import time
import venv
from collections import Counter, defaultdict
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NamedTuple

from bench.daemon import Daemon, title, toml
from bench.runs.walk_recorder import make_switch

_IDLE = 1
_IDLE_TIMES = 6
"""Duration of the idle phase, as a multiple of the others."""
_PROCESSES = {
    "ringward supervisor": "root",
    "ringward scheduler": "scheduler",
    "ringward gunicorn worker": "worker",
    "ringward spawner": "zygote",
}
_TRANSACTION = "call supervisor.scheduler.database.commits _transaction"


class Walk(NamedTuple):
    """The way of one event through one process."""

    process: str
    modules: list[str]
    encodings: list[str]
    decodings: list[str]
    structs: list[str]
    transactions: int


def _environment(directory: Path) -> Path:
    """Create an environment whose Python records its calls; return its ``ringward`` program."""
    venv.EnvBuilder(symlinks=True, with_pip=False).create(directory)
    (packages,) = directory.glob("lib/python*/site-packages")
    root = Path(__file__).parents[2]
    start = f"import bench.runs.walk_recorder; bench.runs.walk_recorder.start({str(directory)!r})"
    (packages / "walk.pth").write_text("\n".join([str(root), *site.getsitepackages(), start, ""]))
    program = directory / "bin" / "ringward"
    program.write_text(f"#!{directory}/bin/python\nfrom ringward import main\nmain()\n")
    program.chmod(0o755)
    return program


def _recorded(files: Sequence[Path]) -> dict[int, Counter[str]]:
    """Return the records of some processes by phase."""
    found: dict[int, Counter[str]] = defaultdict(Counter)
    for file in files:
        for line in file.read_text().splitlines() if file.exists() else ():
            phase, _, text = line.partition(" ")
            found[int(phase)][text] += 1
    return found


def _walk(process: str, idle: Counter[str], rounds: Sequence[Counter[str]]) -> Walk:
    always = functools.reduce(operator.and_, rounds)
    new = [text for text, times in always.items() for _ in range(times) if text not in idle]

    def of(*kinds: str) -> list[str]:
        return sorted(text for text in new if text.split(" ")[0] in kinds)

    return Walk(
        process,
        sorted({text.split(" ")[1] for text in of("call")}),
        of("json.encode", "msgspec.encode"),
        of("json.decode", "msgspec.decode", "msgspec.convert"),
        [text for text in new if text.startswith("struct.")],
        always[_TRANSACTION],
    )


def walks(rounds: int = 5, quiet_s: float = 1.0) -> dict[str, list[Walk]]:
    """Trigger runs and let them exit; return both ways, process by process.

    Args:
        rounds: the number of runs.
        quiet_s: the duration of each phase; the daemon must be done sooner, although it records its calls.
    """
    with tempfile.TemporaryDirectory(prefix="ringward-walk-") as name:
        directory = Path(name)
        switch = make_switch(directory)
        gate = directory / "gate"
        os.mkfifo(gate)
        task = f"[tasks.walk]\nrun = {toml(['sh', '-c', f'read line < {gate}'])}\n"
        phases = iter(range(_IDLE + 1, 256))
        ways: dict[str, list[int]] = {"trigger": [], "exit": []}
        with Daemon(task, program=_environment(directory)) as daemon:
            client = daemon.client()
            for _ in range(3):  # the first use of a statement, a cgroup or a connection takes a longer way
                client.trigger("walk")
                _release(gate)
                time.sleep(quiet_s)
            _during(switch, _IDLE, lambda: None, _IDLE_TIMES * quiet_s)
            for _ in range(rounds):
                for way, act in ("trigger", lambda: client.trigger("walk")), ("exit", lambda: _release(gate)):
                    ways[way].append(next(phases))
                    _during(switch, ways[way][-1], act, quiet_s)
            files: dict[str, list[Path]] = defaultdict(list)
            for one in daemon.processes():
                if (words := title(one)) in _PROCESSES:
                    files[_PROCESSES[words]].append(directory / str(one.pid))
            client.close()
        found = {process: _recorded(of) for process, of in files.items()}
    return {
        way: [_walk(process, of[_IDLE], [of[phase] for phase in phases_of]) for process, of in found.items()]
        for way, phases_of in ways.items()
    }


def _during(switch: mmap.mmap, phase: int, act: Callable[[], object], seconds: float) -> None:
    switch[0] = phase
    act()
    time.sleep(seconds)
    switch[0] = 0


def _release(gate: Path) -> None:
    """Let the run exit; opening the gate waits until the run reads it."""
    gate.write_bytes(b"\n")


def _table(label: str, found: Sequence[Walk]) -> str:
    lines = [f"{label:<12}{'modules':>9}{'encodings':>11}{'decodings':>11}{'structs':>9}{'transactions':>14}"]
    rows = [
        (
            walk.process,
            len(walk.modules),
            len(walk.encodings),
            len(walk.decodings),
            len(walk.structs),
            walk.transactions,
        )
        for walk in found
    ]
    modules = len({name for walk in found for name in walk.modules})
    rows.append(("all", modules, *(sum(column) for column in list(zip(*rows, strict=True))[2:])))
    lines += [f"{row[0]:<12}{row[1]:>9}{row[2]:>11}{row[3]:>11}{row[4]:>9}{row[5]:>14}" for row in rows]
    return "\n".join(lines)


def _listed(found: Sequence[Walk]) -> str:
    lines = []
    for walk in found:
        lines += [f"{walk.process}:", *(f"    {text}" for text in (*walk.modules, *walk.encodings, *walk.decodings))]
    return "\n".join(lines)


def main() -> int:
    """Print both tables."""
    parser = argparse.ArgumentParser(
        prog="python -m bench.runs.walk", description="Count the modules on the way of a run."
    )
    parser.add_argument("--list", action="store_true", help="also print the modules, and where values are coded")
    everything = parser.parse_args().list
    for label, found in walks().items():
        print(_table(label, found))
        print(_listed(found) if everything else "")
    return 0


if __name__ == "__main__":
    sys.exit(main())
