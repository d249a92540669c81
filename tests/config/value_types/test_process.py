"""Keys for starting and stopping processes, and files of variables."""

import signal
from collections.abc import Callable
from pathlib import Path

import pytest

from supervisor.config.files.env_file import parse_variables
from supervisor.config.model import Config
from supervisor.config.problems import InvalidValue, Problem
from supervisor.config.value_types.process import USER, Cpus, Limits, StopSignal, Umask

Load = Callable[..., Config]
Problems = Callable[..., list[Problem]]


def test_stop_signals() -> None:
    """A stop signal is one signal, or several with their times in milliseconds."""
    assert StopSignal().parse("int", "/") == signal.SIGINT
    steps = [["SIGINT", "10s"], ["SIGRTMIN+3", "0s"]]
    assert StopSignal().parse(steps, "/") == ((signal.SIGINT, 10_000), (signal.SIGRTMIN + 3, 0))


@pytest.mark.parametrize("value", [[], ["SIGINT"], [["SIGINT"]], [["SIGSTOP", "1s"]], [["SIGINT", 5]], 15])
def test_invalid_stop_signals(value: object) -> None:
    """An invalid signal, step or time is refused."""
    with pytest.raises(InvalidValue):
        StopSignal().parse(value, "/")


def test_limits() -> None:
    """Sizes become bytes, times become seconds, and "unlimited" becomes -1."""
    limits = {
        "memory": "1gb",
        "address_space": "4gb",
        "cpu": 1,
        "cpu_time": "1500ms",
        "core": "unlimited",
        "nice": -5,
        "stack": "64kb",
    }
    parsed = {
        "memory": 1 << 30,
        "address_space": 4 << 30,
        "cpu": 1.0,
        "cpu_time": 2,
        "core": -1,
        "nice": -5,
        "stack": 65536,
    }
    assert Limits().parse(limits, "/") == parsed


@pytest.mark.parametrize(
    ("limits", "path"),
    [
        ({"memroy": "1gb"}, ("memroy",)),
        ({"memory": "unlimited"}, ("memory",)),
        ({"address_space": "1kb"}, ("address_space",)),
        ({"cpu": 0}, ("cpu",)),
        ({"cpu": True}, ("cpu",)),
        ({"nofile": 1}, ("nofile",)),
        ({"nice": 20}, ("nice",)),
        ({"oom_score_adj": -1001}, ("oom_score_adj",)),
        ("512mb", ()),
    ],
)
def test_invalid_limits(limits: object, path: tuple[str, ...]) -> None:
    """An unknown limit or an impossible value is refused at its key."""
    with pytest.raises(InvalidValue) as caught:
        Limits().parse(limits, "/")
    assert [part.path for part in caught.value.parts] == [path]


def test_umask_user_and_cpus() -> None:
    """Valid values of umask, user and cpus are parsed, and invalid ones refused."""
    assert Umask().parse("027", "/") == 0o027
    assert Umask().parse("0777", "/") == 0o777
    assert USER.parse("backup:adm", "/") == "backup:adm"
    assert Cpus().parse(0.5, "/") == 0.5
    for kind, wrong in ((Umask(), 27), (Umask(), "088"), (Umask(), "1000"), (USER, "a:b:c"), (USER, "a b")):
        with pytest.raises(InvalidValue):
            kind.parse(wrong, "/")


def test_variables_file() -> None:
    """A file of variables has comments, quotes, escapes and multi-line values, and its last value of a name wins."""
    text = """\
# comment
  # another
A=1
export B = two words   # comment
C='it is # as $it \\n stands'
D="a\\tb\\n\\"c\\" \\$d \\\\ \\x"
E="one
two"
F=
G=a#b
H=#4711
I= # nothing
1a.b-c=odd
export é=2
A=last\r
"""
    assert parse_variables(text) == {
        "A": "last",
        "B": "two words",
        "C": "it is # as $it \\n stands",
        "D": 'a\tb\n"c" $d \\ \\x',
        "E": "one\ntwo",
        "F": "",
        "G": "a#b",
        "H": "#4711",
        "I": "",
        "1a.b-c": "odd",
        "é": "2",
    }
    assert parse_variables("") == {}


@pytest.mark.parametrize(
    ("text", "line"), [("A=1\n\nnothing", 3), ("A='x", 1), ('A=1\nB="x" y', 2), ("A B=2", 1), ("'A=2", 1), ("=2", 1)]
)
def test_invalid_variables_file(text: str, line: int) -> None:
    """An error in a file of variables names the line, and does not show its content."""
    with pytest.raises(InvalidValue, match=f"^line {line} ") as caught:
        parse_variables(text)
    assert not caught.value.show


def test_precedence_of_variables(config: Load, tmp_path: Path) -> None:
    """A unit overrides [defaults], and in each of them a value overrides a file."""
    (tmp_path / "one").write_text("A=1\nB=1\nC=1\nD=1\n")
    (tmp_path / "two").write_text("C=2\nD=2\nE=2\n")
    loaded = config(
        """
        [defaults]
        env_file = "one"
        env = { B = "default" }
        limits = { nice = 1, nofile = 100 }
        [tasks.a]
        run = "x"
        env_file = ["two"]
        env = { D = "said" }
        limits = { nice = 2 }
        """
    )
    task = loaded.tasks["a"]
    assert task.env == {"A": "1", "B": "default", "C": "2", "D": "said", "E": "2"}
    assert task.limits == {"nice": 2, "nofile": 100}
    assert {str(tmp_path / name) for name in ("one", "two")} <= loaded.read.keys()


def test_unusable_variables_files(problems: Problems, tmp_path: Path) -> None:
    """A file that cannot be used is an error at its key, and no secret is shown."""
    (tmp_path / "short").write_text("TOKEN=abc\n")
    (tmp_path / "own").write_text("RINGWARD_X=abc\n")
    problems_found = problems(
        '[tasks.a]\nrun = "x"\nsecrets_file = "short"\nenv_file = ["own", "missing"]\n',
    )
    texts = [str(problem) for problem in problems_found]
    assert len(texts) == 3
    assert any("secrets_file" in text and "TOKEN cannot be masked" in text and "abc" not in text for text in texts)
    assert any("RINGWARD_X is reserved: names that begin with RINGWARD_" in text for text in texts)
    assert any("missing: cannot be read" in text for text in texts)


def test_oversized_variable(config: Load, problems: Problems) -> None:
    """Name, equals sign, value and NUL must fit into MAX_ARG_STRLEN, 128 KiB; the largest variable is accepted."""
    largest = "x" * (128 * 1024 - len("app.name=") - 1)
    unit = "[tasks.t]\nrun = ['true']\nenv = {{ 'app.name' = '{}' }}\n"
    assert config(unit.format(largest)).tasks["t"].env == {"app.name": largest}
    (problem,) = problems(unit.format(largest + "x"))
    assert (problem.line, problem.key) == (3, 'tasks.t.env."app.name"')
    assert problem.message == "takes 131072 bytes with its name; the kernel takes at most 131071 in one variable"


@pytest.mark.parametrize("where", ["env", "secrets", "env_file"])
def test_shell_that_drops_variables(config: Load, tmp_path: Path, where: str) -> None:
    """A command string for dash, ash or busybox warns of names that the shell drops.

    A list and a command for bash do not.
    """
    for name in ("dash", "bash"):
        (tmp_path / name).touch()
    (tmp_path / "sh").symlink_to(tmp_path / "dash")
    (tmp_path / "variables").write_text("app.name=a shop\n")
    key_line = f"env_file = '{tmp_path}/variables'" if where == "env_file" else f"{where} = {{ 'app.name' = 'a shop' }}"
    text = f"shell = '{tmp_path}/sh'\n{key_line}\n[services.s]\nrun = 'true'\nready = {{ exec = 'true' }}\n"
    text = f"[defaults]\n{text}[services.l]\nrun = ['true']\nlive = {{ exec = ['true'] }}\n"
    first, second = config(text).warnings
    assert (first.line, first.key, second.key) == (5, "services.s.run", "services.s.ready")
    assert first.message == (f'{tmp_path}/sh is dash, which drops variables with names such as "app.name"')
    assert first.remedy == 'write run as a list of arguments, or add shell = "/bin/bash"'
    assert config(text.replace("/sh'", "/bash'")).warnings == ()
    assert config(text.replace("app.name", "APP")).warnings == () or where == "env_file"
