"""References in values."""

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from supervisor.config.files.substitute import substitute
from supervisor.config.model import Config
from supervisor.config.problems import Invalid, Problem


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
    """Variables, defaults and files; inserted text is not expanded again."""
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
def test_what_has_no_value_is_an_error(text: str, message: str, tmp_path: Path) -> None:
    """Nothing silently becomes empty, and a FIFO is not waited for."""
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "binary").write_bytes(b"\xff")
    (tmp_path / "large").write_bytes(b"x" * 65537)
    with pytest.raises(Invalid, match=message):
        substitute(text, {"RINGWARD_PASSWORD": "secret-secret", "BYTES": "\udcff"}, str(tmp_path))


def test_every_kind_of_value_takes_references_but_run_does_not(config: Callable[..., Config]) -> None:
    """Strings, numbers, truth values, lists and tables; a command keeps its ${…} for the shell."""
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


def test_messages_show_the_reference_and_not_its_value(problems: Callable[..., list[Problem]]) -> None:
    """A secret in the wrong place is not printed."""
    found = problems('[tasks.a]\nrun = "x"\ntimeout = "${SECRET}"\n', SECRET="hunter2")
    assert "${SECRET}" in found[0].message
    assert "hunter2" not in str(found[0])


def test_all_wrong_parts_of_one_value_are_told(problems: Callable[..., list[Problem]]) -> None:
    """References without a value do not hide other problems beside them."""
    found = problems('[tasks.a]\nrun = "x"\nenv = { A = "${NONE}", B = 1, C = "${NEITHER}" }\n')
    assert {problem.key for problem in found} == {"tasks.a.env.A", "tasks.a.env.B", "tasks.a.env.C"}
