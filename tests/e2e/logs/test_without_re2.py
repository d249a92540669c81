"""A real daemon without google-re2: it searches plain texts, and each regular expression is an error."""

from collections.abc import Iterator
from pathlib import Path
from urllib.parse import urlencode

import pytest

from logring.regex import Re2Missing
from tests.support.daemon import Daemon
from tests.support.lean import environment


class WithoutRe2(Daemon):
    """A daemon in an environment without google-re2."""

    def command(self) -> list[str]:
        return [str(environment("google-re2") / "bin" / "ringward")]

    def client_command(self) -> list[str]:
        return self.command()


@pytest.fixture
def daemon(tmp_path: Path) -> Iterator[WithoutRe2]:
    daemon = WithoutRe2(tmp_path)
    yield daemon
    daemon.clean()


def test_without_re2(daemon: WithoutRe2) -> None:
    """Plain texts are found, ignoring case too; regular expressions of the configuration and of options are errors."""
    daemon.write('[tasks.t]\nrun = "echo Error one; echo ÄPFEL; echo error two"\n')
    working = daemon.config.read_text()
    daemon.start()
    daemon.ended(daemon.trigger("t"))
    assert [line.rpartition(": ")[2] for line in daemon.cli("search", "t", "ERROR", "-i").stdout.splitlines()] == [
        "Error one",
        "error two",
    ]
    assert daemon.cli("search", "äpfel", "-i").stdout.endswith("ÄPFEL\n")
    assert daemon.cli("search", "error").stdout.endswith("error two\n")
    answer = daemon.get(f"/api/logs/search?{urlencode({'q': '^e', 'regex': 'true'})}")
    assert (answer.status, answer.json()["errors"][0]["message"]) == (422, str(Re2Missing()))
    for arguments in (("search", "^e", "--regex"), ("logs", "t", "--grep", "^e")):
        refused = daemon.cli(*arguments)
        assert refused.returncode != 0
        assert str(Re2Missing()) in refused.stderr
    daemon.config.write_text(f'{working}failure_output = "^error"\n')
    for command in ("validate", "reload", "up"):
        if command == "up":
            daemon.stop()
        refused = daemon.cli(command)
        assert refused.returncode == 78
        assert f"tasks.t.failure_output: {Re2Missing.message}\n  {Re2Missing.remedy}\n" in refused.stderr
