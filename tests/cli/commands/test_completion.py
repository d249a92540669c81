"""Completion in real shells, with the scripts that ``ringward completion`` prints."""

import contextlib
import os
import pty
import shutil
import subprocess
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path

import psutil
import pytest

from tests.support.command_line import Ringward
from tests.support.waiting import until

ENV = {"PATH": f"{Path(sys.executable).parent}:/usr/bin:/bin", "HOME": "/dev/null", "TERM": "dumb", "PS1": "$ "}
CASES = (
    ("ringward compl", "completion"),
    ("ringward validate --config my", "my.toml"),
    ("ringward --data dir", "directory/"),
)


@pytest.fixture
def place(tmp_path: Path) -> Path:
    """A directory with a file and a directory to complete."""
    (tmp_path / "my.toml").touch()
    (tmp_path / "directory").mkdir()
    return tmp_path


@pytest.mark.skipif(shutil.which("fish") is None, reason="no fish")
def test_fish(ringward: Ringward, place: Path) -> None:
    """Fish completes commands, options, files and directories."""
    script = place / "script.fish"
    script.write_text(ringward("completion", "fish").output)
    for line, expected in CASES:
        command = ["fish", "--no-config", "-c", f"source script.fish; complete -C '{line}'"]
        done = subprocess.run(command, cwd=place, env=ENV, capture_output=True, text=True, check=True)
        assert done.stdout.split()[0].endswith(expected), done
    options = ["fish", "--no-config", "-c", "source script.fish; complete -C 'ringward logs --fol'"]
    done = subprocess.run(options, cwd=place, env=ENV, capture_output=True, text=True, check=True)
    assert done.stdout.startswith("--follow\t")


class Shell:
    """An interactive shell on its own terminal."""

    def __init__(self, place: Path, *command: str, env: Mapping[str, str] = ENV) -> None:
        self._fd, theirs = pty.openpty()
        self.process = subprocess.Popen(
            command, cwd=place, env=env, stdin=theirs, stdout=theirs, stderr=theirs, start_new_session=True
        )
        os.close(theirs)
        os.set_blocking(self._fd, False)
        self._seen = ""

    def shows(self, text: str) -> bool:
        """Return whether a text has appeared since the last input."""
        with contextlib.suppress(BlockingIOError):
            self._seen += os.read(self._fd, 65536).decode(errors="replace")
        return text in self._seen

    def send(self, text: str) -> None:
        """Type a text."""
        self._seen = ""
        os.write(self._fd, text.encode())

    def close(self) -> None:
        """End the shell and its children: without a terminal, a forked zsh would run on and on."""
        children = psutil.Process(self.process.pid).children(recursive=True)
        self.process.kill()
        for child in children:
            with contextlib.suppress(psutil.NoSuchProcess):
                child.kill()
        self.process.wait()
        os.close(self._fd)


@pytest.fixture
def zsh(place: Path, ringward: Ringward) -> Iterator[Shell]:
    """A zsh that has read the script."""
    (place / "script.zsh").write_text(ringward("completion", "zsh").output)
    shell = Shell(place, "zsh", "-f", "-i")
    shell.send("autoload -Uz compinit; compinit -D -u; source script.zsh; PS2=; echo rea''dy\n")
    until(lambda: shell.shows("ready"), "the script to be read")
    yield shell
    shell.close()


@pytest.mark.skipif(shutil.which("zsh") is None, reason="no zsh")
@pytest.mark.parametrize(("line", "expected"), [*CASES, ("ringward logs --fol", "--follow")])
def test_zsh(zsh: Shell, line: str, expected: str) -> None:
    """Zsh completes commands, options, files and directories."""
    zsh.send(f"{line}\t")
    until(lambda: zsh.shows(line.rpartition(" ")[0] + " " + expected), "the completed line")


@pytest.fixture
def bash(place: Path, ringward: Ringward) -> Iterator[Shell]:
    """A bash that has read the script. Its ``ringward`` notes the words to complete, and offers one name."""
    (place / "script.bash").write_text(ringward("completion", "bash").output)
    program = place / "ringward"
    program.write_text('#!/bin/sh\nprintf "%s|" $COMP_WORDS "$COMP_CWORD" > words\necho plain,db:backup\n')
    program.chmod(0o755)
    shell = Shell(place, "bash", "--norc", "--noprofile", "-i", env={**ENV, "PATH": f"{place}:{ENV['PATH']}"})
    shell.send("bind 'set enable-bracketed-paste off'; source script.bash; echo rea''dy\n")
    until(lambda: shell.shows("ready"), "the script to be read")
    yield shell
    shell.close()


@pytest.mark.parametrize(
    ("line", "completed", "words"),
    [
        ("ringward run db:b", "ringward run db:backup", "ringward|run|db:b|2|"),
        ("ringward run db:", "ringward run db:backup", "ringward|run|db:|2|"),
        ("ringward run d", "ringward run db:backup", "ringward|run|d|2|"),
        ("ringward run  a:b  d", "ringward run  a:b  db:backup", "ringward|run|a:b|d|3|"),
        ("true; ringward --data=x run d", "run db:backup", "ringward|--data=x|run|d|3|"),
        ("ringward logs --task=db:b", "--task=db:backup", "ringward|logs|--task=db:b|2|"),
    ],
)
def test_bash(bash: Shell, place: Path, line: str, completed: str, words: str) -> None:
    """Bash completes names with colons, and keeps the value of an option together with its name."""
    bash.send(f"{line}\t")
    until(lambda: bash.shows(completed), "the completed line")
    assert (place / "words").read_text() == words
