"""``on_change``: the paths that a task can watch."""

from collections.abc import Callable
from pathlib import Path

import pytest

from supervisor.config.model import Config
from supervisor.config.problems import Problem

Load = Callable[..., Config]
Problems = Callable[..., list[Problem]]


def task(text: str) -> str:
    return f'[tasks.t]\nrun = "true"\n{text}'


def test_paths(config: Load, tmp_path: Path) -> None:
    """on_change takes one or several paths, relative to the file's directory, and may be combined with a schedule."""
    task_of_config = config(task('on_change = "in/*.csv"\nsettle = "250ms"\ncron = "@daily"\n')).tasks["t"]
    assert (task_of_config.on_change, task_of_config.settle_ms) == ((f"{tmp_path}/in/*.csv",), 250)
    task_of_config = config(task('on_change = ["/srv/in/*.[ct]sv", "/srv/flag"]\n')).tasks["t"]
    assert (task_of_config.on_change, task_of_config.settle_ms) == (("/srv/in/*.[ct]sv", "/srv/flag"), 1000)
    assert config(task("")).tasks["t"].on_change == ()


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ('on_change = "/srv/*/in.csv"\n', "must have wildcards in the last part of the path only"),
        ('on_change = "/srv/in/"\n', 'write "/srv/in/*" for all files in it'),
        ('on_change = ["/srv/in/*", "/srv/in/*"]\n', 'on_change[1]: "/srv/in/*" repeats an earlier item'),
        ("on_change = 3\n", "must be a path such as"),
        ('on_change = "~/in/*"\n', "has a ~, which is not expanded"),
        ('settle = "2h"\n', "must be a duration from 0s to 1h"),
        (
            'on_change = "/in/*"\nparams = [{ name = "a", kind = "arg", required = true }]\n',
            "is required, but runs of a schedule, of changed files and of the start have no caller",
        ),
        (
            'on_change = "/in/*"\nlauncher = "d"\n[launchers.d]\npreset = "docker"\nimage = "x"\n',
            "on_change names files of this host, which the job cannot read",
        ),
        ('[services.s]\nrun = "true"\non_change = "/in/*"\n', "only a task has this key"),
    ],
)
def test_mistakes(problems: Problems, text: str, expected: str) -> None:
    """Each mistake is reported, with a remedy where there is one."""
    assert expected in "\n".join(map(str, problems(task(text))))


def test_too_many_tasks(problems: Problems) -> None:
    """At most 64 tasks can watch files."""
    text = "".join(f'[tasks.t{number}]\nrun = "true"\non_change = "/in/*"\n' for number in range(66))
    problems_found = problems(text)
    assert [problem.key for problem in problems_found] == ["tasks.t64.on_change", "tasks.t65.on_change"]
    assert problems_found[0].message == "more than 64 tasks have on_change"
