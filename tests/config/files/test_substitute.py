"""References to variables and files in values."""

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from supervisor.config.files.substitute import Substituted, referring, refers, substitute
from supervisor.config.model import Config
from supervisor.config.problems import InvalidValue, Problem
from supervisor.config.value_records import Reference


@pytest.mark.parametrize(
    ("text", "result"),
    [
        ("plain $HOME $$ {x}", "plain $HOME $$ {x}"),
        ("${A}", "one"),
        ("<${A}${A}>", "<oneone>"),
        ("${NONE:-default}", "default"),
        ("${EMPTY:-default}", "default"),
        ("${EMPTY}", ""),
        ("${NONE:-}", ""),
        ("$${A}", "${A}"),
        ("${REF}", "${A}"),
        ("${file:secret}", "hidden"),
    ],
)
def test_references_are_replaced_once(text: str, result: str, tmp_path: Path) -> None:
    """Variables, defaults and files are replaced once; inserted text is not expanded again."""
    (tmp_path / "secret").write_text("hidden\n")
    environ = {"A": "one", "EMPTY": "", "REF": "${A}"}
    assert substitute(text, environ, str(tmp_path)) == result


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("${NONE}", "NONE is not set"),
        ("${", "without its }"),
        ("${a b}", "names no variable"),
        ("${}", "names no variable"),
        ("${RINGWARD_PASSWORD}", "belongs to the daemon"),
        ("${BYTES}", "BYTES is not UTF-8"),
        ("${file:missing}", "No such file"),
        ("${file:a\0b}", "NUL"),
        ("${file:.}", "regular file"),
        ("${file:pipe}", "regular file"),
        ("${file:binary}", "not UTF-8"),
        ("${file:large}", "larger than"),
    ],
)
def test_reference_without_a_value(text: str, message: str, tmp_path: Path) -> None:
    """A reference without a value is an error, and a FIFO is not waited for."""
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "binary").write_bytes(b"\xff")
    (tmp_path / "large").write_bytes(b"x" * 65537)
    with pytest.raises(InvalidValue, match=message):
        substitute(text, {"RINGWARD_PASSWORD": "secret-secret", "BYTES": "\udcff"}, str(tmp_path))


def test_references_in_values(config: Callable[..., Config]) -> None:
    """Strings, numbers, booleans, lists and tables take references; a command keeps its ${…} for the shell."""
    loaded = config(
        """
        [http]
        workers = "${N}"
        [tasks.a]
        run = "echo ${N}"
        api_trigger = "${YES}"
        tags = ["${N}"]
        env = { B = "x${N}" }
        [tasks.b]
        run = ["echo", "${N}"]
        """,
        N="3",
        YES="false",
    )
    task = loaded.tasks["a"]
    assert (loaded.http.workers, task.api_trigger, task.tags, task.env) == (3, False, ("3",), {"B": "x3"})
    assert (task.run, loaded.tasks["b"].run) == ("echo ${N}", ("echo", "${N}"))


def test_messages_show_the_reference(problems: Callable[..., list[Problem]]) -> None:
    """A message shows the reference and not its value, so a misplaced secret is not printed."""
    problems_found = problems('[tasks.a]\nrun = "x"\ntimeout = "${SECRET}"\n', SECRET="hunter2")
    assert "${SECRET}" in problems_found[0].message
    assert "hunter2" not in str(problems_found[0])


@pytest.mark.parametrize(
    ("keys", "value"),
    [
        ('[tasks.a]\nrun = "x"\ncron = "${SECRET}"\n', "hunter2 * * * *"),
        ('[tasks.a]\nrun = "x"\nfailure_output = "${SECRET}"\n', "hunter2("),
        ('[tasks.a]\nrun = "x"\nparams = [{ name = "a", kind = "arg", pattern = "${SECRET}" }]\n', "hunter2("),
        ('[tasks.a]\nrun = "x"\non_change = "${SECRET}"\n', "/hunter2/"),
        ('[tasks.a]\nrun = "x"\nuses = "${SECRET}"\n', "hunter2"),
        ('[tasks.a]\nrun = "x"\nmay = ["${SECRET}"]\n', "hunter2:a"),
        ('[tasks.a]\nrun = "x"\nmay = ["${SECRET}"]\n', "run:hunter2 a"),
        ('[http]\nbehind_proxy = ["${SECRET}"]\n', "hunter2"),
        ('[services.a]\nrun = "x"\nready = { log = "${SECRET}" }\n', "hunter2("),
    ],
)
def test_no_reason_shows_a_substituted_value(problems: Callable[..., list[Problem]], keys: str, value: str) -> None:
    """Neither the reason for an error nor its remedy quotes a part of a substituted value."""
    (problem,) = problems(keys, SECRET=value)
    assert "hunter2" not in str(problem)


def test_all_errors_of_one_value(problems: Callable[..., list[Problem]]) -> None:
    """A reference without a value does not hide other errors in the same table."""
    problems_found = problems('[tasks.a]\nrun = "x"\nenv = { A = "${NONE}", B = 1, C = "${NEITHER}" }\n')
    assert {problem.key for problem in problems_found} == {"tasks.a.env.A", "tasks.a.env.B", "tasks.a.env.C"}


def test_references_to_steps() -> None:
    """Where a value may have references to steps, they stay in the text, and its template has them as records."""
    text = substitute("${A}-${step:a.b:-${A}}$${step:c.d}", {"A": "${step:x.y}"}, "/", referable=True)
    assert text == "${step:x.y}-${step:a.b:-${A}}${step:c.d}"
    assert isinstance(text, Substituted)
    assert text.template == ("${step:x.y}-", Reference("step", "a", "b", "${A"), "}${step:c.d}")


def test_argument_with_references() -> None:
    """In an argument of a command only references to steps have a meaning, and `$$` before them."""
    assert referring("$HOME ${HOME} $${HOME} ${step:-x}") == "$HOME ${HOME} $${HOME} ${step:-x}"
    text = referring("$${each:a}${each:a}")
    assert isinstance(text, Substituted)
    assert text.template == ("${each:a}", Reference("each", "a"))
    assert (refers("echo ${step:a.b}"), refers("echo $${step:a.b}"), refers("echo ${step:-a}")) == (True, False, False)
