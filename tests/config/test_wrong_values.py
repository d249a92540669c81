"""Wrong probes, parameters, promises, flows, gates and sockets, with the problems that a user reads.

Each file in the folder ``wrong`` has parts of configurations, each followed by its problems in lines that begin with
``#:``. A part starts after the text of `BEGINNINGS`.
"""

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from supervisor.config.load import load
from supervisor.config.problems import ConfigError
from tests.support.host_features import HAS_RE2

BEGINNINGS = {
    "probes": '[services.web]\nrun = "x"\n',
    "params": '[tasks.a]\nrun = "x"\n',
    "flows": "",
    "gates": "",
    "promises": '[tasks.a]\nrun = "x"\n',
    "sockets": '[services.web]\nrun = ["x"]\n',
}
ENVIRONMENT = {"WORD": "word", "NUMBER": "5", "YES": "true", "EMPTY": "", "DASH": "-v", "SECRET": "hidden-9-value"}
NEVER_SHOWN = "hidden-9"
"""The beginning of the values of ``${SECRET}`` and of ``${file:secret.txt}``."""
MARK = "#: "
REASON_OF_ENGINE = re.compile(r"(regular expression(?: for a line)?): .*")
"""The reason for which RE2 rejects a pattern; its releases have words of their own."""


def cases() -> Iterator[tuple[str, str, list[str]]]:
    """Yield the file and line, the text and the problems of each case."""
    for kind, beginning in BEGINNINGS.items():
        text, expected, first = "", list[str](), 1
        lines = (Path(__file__).parent / "wrong" / f"{kind}.txt").read_text().splitlines()
        for number, line in enumerate([*lines, ""], 1):
            if line.startswith(MARK):
                expected.append(line.removeprefix(MARK))
                continue
            if expected:
                yield f"{kind}:{first}", beginning + text, expected
                text, expected, first = "", [], number
            text += f"{line}\n"


CASES = list(cases())


@pytest.mark.parametrize(("text", "expected"), [case[1:] for case in CASES], ids=[case[0] for case in CASES])
def test_problems(tmp_path: Path, text: str, expected: list[str]) -> None:
    """Each mistake in a probe, parameter, promise, flow or socket is reported with its line, key and remedy."""
    if not HAS_RE2 and re.search(r"\b(log|pattern) =", text):
        pytest.skip("needs google-re2")
    path = tmp_path / "r.toml"
    path.write_text(text)
    path.chmod(0o600)
    (tmp_path / "secret.txt").write_text(f"{NEVER_SHOWN}-file\n")
    with pytest.raises(ConfigError) as caught:
        load(str(path), ENVIRONMENT)
    moves = "\n".join(str(problem).removeprefix(f"{path}:") for problem in caught.value.problems)
    assert REASON_OF_ENGINE.sub(r"\1: …", moves.replace(str(tmp_path), "DIR")).splitlines() == expected
    assert NEVER_SHOWN not in moves
