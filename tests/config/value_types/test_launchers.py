"""Launchers in the configuration."""

from collections.abc import Callable

import pytest

from supervisor.config.diff import diff, process_hash
from supervisor.config.keys import Effect
from supervisor.config.model import Config
from supervisor.config.problems import Problem
from supervisor.config.value_types.presets import PRESETS

UNIT = '[tasks.t]\nrun = "true"\nlauncher = "l"\n'
SETTINGS = {"host": "deploy@web1", "image": "alpine:3"}


@pytest.mark.parametrize("name", PRESETS)
def test_every_preset_is_complete(config: Callable[..., Config], name: str) -> None:
    """With the keys that it needs, each preset has all three commands without open settings."""
    needed = "".join(f'{key} = "{SETTINGS[key]}"\n' for key in PRESETS[name].needs)
    launcher = config(f'[launchers.l]\npreset = "{name}"\n{needed}{UNIT}').tasks["t"].launcher
    assert launcher is not None
    for words in (launcher.start, launcher.stop, launcher.probe):
        assert words
        assert not any(
            placeholder in word for word in words for placeholder in ("{client}", "{options}", "{host}", "{image}")
        )


def test_custom_launcher(config: Callable[..., Config]) -> None:
    """A launcher's own commands are used, or replace its preset's commands; local means no launcher."""
    loaded = config(
        """
[launchers.own]
start = ["srun", "--job-name={run_id}", "{shell}", "-e", "-c", "{run}"]
stop = ["scancel", "--name={run_id}"]
[launchers.mixed]
preset = "ssh"
host = "web1"
client = ["ssh", "-p", "2222"]
options = ["-l", "deploy"]
stop = ["{client}", "{host}", "stop-it", "{run_id}"]
[launchers.plain]
start = ["env", "{command}"]
[defaults]
launcher = "own"
[tasks.a]
run = "true"
[services.b]
run = "true"
launcher = "mixed"
[tasks.c]
run = "true"
launcher = "local"
[tasks.d]
run = "true"
launcher = "plain"
"""
    )
    own, mixed = loaded.tasks["a"].launcher, loaded.services["b"].launcher
    assert own is not None
    assert mixed is not None
    assert (own.start[-1], own.probe) == ("{run}", ())
    assert mixed.stop == ("ssh", "-p", "2222", "web1", "stop-it", "{run_id}")
    assert (mixed.feed, mixed.probe[:3]) == ("script", ("ssh", "-p", "2222"))
    assert mixed.probe[-4:-1] == ("-l", "deploy", "web1")
    assert loaded.tasks["c"].launcher is None


@pytest.mark.parametrize(
    ("text", "line", "key", "message", "remedy"),
    [
        ('preset = "slrum"', 2, "preset", "must be", "slurm"),
        ('preset = "slurm"\nhost = "x"', 3, "host", "not a key of the preset slurm", "start"),
        ('preset = "slurm"\nclient = ["x"]', 3, "client", "not a key of the preset slurm", "start"),
        ('preset = "ssh"', 1, "", "needs host", "add host"),
        ('preset = "docker"\nimage = "a b"', 3, "image", "must be one word", ""),
        ('stop = ["x"]', 1, "", "has neither preset nor start", "preset"),
        ('start = ["x"]', 2, "start", "has no placeholder for the command", "{command}"),
        ('start = ["x", "{command} y"]', 2, "start[1]", "several arguments", "separate argument"),
        ('start = ["x", "{run}"]\nstop = ["y", "{runid}"]', 3, "stop[1]", "unknown placeholder {runid}", "run_id"),
        ('start = ["x", "{run}"]\nprobe = ["y", "{command}"]', 3, "probe[1]", "unknown placeholder {command}", ""),
        ('start = ["x", "{host}", "{run}"]', 2, "start[1]", "needs the key host", "add host"),
        ('preset = "ray"\noptions = ["{x}"]', 3, "options[0]", "unknown placeholder {x}", ""),
        ('preset = "slurm"\nstart = "srun"', 3, "start", "must be a list", "item"),
        ('preset = "slurm"\nwhere = 1', 3, "where", "unknown key", ""),
    ],
)
def test_launcher_errors(
    problems: Callable[..., list[Problem]], text: str, line: int, key: str, message: str, remedy: str
) -> None:
    """An error in a launcher has its place and, if there is one, a remedy."""
    (problem,) = problems(f"[launchers.l]\n{text}\n{UNIT}")
    assert (problem.line, problem.key) == (line, f"launchers.l.{key}".rstrip("."))
    assert message in problem.message
    assert remedy in (problem.remedy or "")


@pytest.mark.parametrize(
    ("unit", "key", "message"),
    [
        ('[tasks.t]\nrun = "true"\nlauncher = "rya"\n', "tasks.t.launcher", 'no launcher named "rya"'),
        (
            '[tasks.t]\nrun = "true"\nlauncher = "ray"\nsecrets = { TOKEN = "abcdefgh" }\n',
            "tasks.t.launcher",
            "would expose secrets such as TOKEN",
        ),
        (
            '[services.s]\nrun = "true"\nlauncher = "ray"\nready = { notify = true }\n',
            "services.s.launcher",
            "ready = notify cannot reach",
        ),
        ('[launchers.local]\npreset = "ray"\n', "launchers.local", "reserved for this host"),
        ('[defaults]\nlauncher = "x y"\n', "defaults.launcher", "must be the name of a launcher"),
    ],
)
def test_units_without_launchers(problems: Callable[..., list[Problem]], unit: str, key: str, message: str) -> None:
    """A launcher that a unit cannot have, or that does not exist, is refused at its key."""
    (problem,) = problems(f'[launchers.ray]\npreset = "ray"\n{unit}')
    assert problem.key == key
    assert message in problem.message


def test_changed_launcher(config: Callable[..., Config]) -> None:
    """A changed launcher is a difference of exactly the units that use it."""
    text = '[launchers.l]\npreset = "slurm"\n{}{}[services.s]\nrun = "true"\nlauncher = "l"\n[tasks.o]\nrun = "true"\n'
    before, after = config(text.format("", UNIT)), config(text.format('options = ["--mem=1"]\n', UNIT))
    by_name = {change.new.name: change.keys for change in diff(before, after).changed}
    assert {name: [(key_change.key, key_change.effect) for key_change in keys] for name, keys in by_name.items()} == {
        "s": [("launcher", Effect.RESTART)],
        "t": [("launcher", Effect.NEXT_RUN)],
    }
    assert process_hash(before.services["s"]) != process_hash(after.services["s"])
