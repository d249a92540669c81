"""Commands of cron's shell, as Ringward runs them.

Cron runs ``SHELL -c COMMAND``, looks at no exit status, and lets go on what a command leaves in the background.
Ringward runs ``SHELL -e -c COMMAND``, takes each other status than 0 for a failure, and a run ends with its command.
"""

import os
import re
from dataclasses import dataclass

_QUOTED = r"'[^']*'|\"(?:[^\"\\]|\\.)*\"|\\."
_OPERATOR = re.compile(rf"{_QUOTED}|(?P<operator>&>>|&>|>&|<&|&&|\|&|\|\||;|&|\n)", re.DOTALL)
_DETACHED = re.compile(r"\s*(?:(?:nohup|setsid)(?:\s+(?:--\w+|-\w+))*\s+)+(?=\S)")
_TEST = re.compile(r"(?:\[\[?\s.*\s\]\]?|test\s.*)", re.DOTALL)
_BASH = frozenset({"bash", "zsh"})


@dataclass(frozen=True)
class Command:
    """A command and the remarks on it."""

    run: str | list[str]
    """For the key ``run``: a list where ``-e`` would change what the command does."""
    advice: tuple[str, ...]


def as_run(command: str, shell: str, *, input_text: str = "") -> Command:
    """Return the command for the key ``run``.

    Args:
        command: as cron gives it to its shell.
        shell: the program that cron gives it to.
        input_text: what stands behind it as its input, as a here-document.
    """
    advice = []
    if os.path.basename(shell) not in _BASH and (text := _both_redirected(command)) != command:
        command = text
        advice.append(f"&> is of bash, {shell} may read it as &: written as > FILE 2>&1")
    if (text := _foreground(command)) != command:
        command = text
        advice.append("stays in the foreground here: the run lasts as long as the command")
    if (text := _guarded(command)) != command:
        command = text
        advice.append("a false test is not a failure here either: written with if")
    wrong_with_e = any(operator in (";", "&", "\n") for operator, _ in _operators(command))
    text = f"{{ {command}\n}} {input_text}" if input_text else command
    return Command([shell, "-c", text] if wrong_with_e else text, tuple(advice))


def _operators(command: str) -> list[tuple[str, int]]:
    """Return the operators outside of quotes, and where each begins."""
    return [(found["operator"], found.start("operator")) for found in _OPERATOR.finditer(command) if found["operator"]]


def _both_redirected(command: str) -> str:
    for operator, start in reversed(_operators(command)):
        if operator in ("&>>", "&>"):
            behind = start + len(operator)
            if target := re.match(rf"\s*(?:{_QUOTED}|[^\s;&|<>()])+", command[behind:]):
                end = behind + target.end()
                command = f"{command[:start]}{operator[1:]}{command[behind:end]} 2>&1{command[end:]}"
    return command


def _foreground(command: str) -> str:
    """Return the command without an ampersand at its end, and without programs that would detach it."""
    operators = _operators(command)
    if operators and operators[-1][0] == "&" and not command[operators[-1][1] + 1 :].strip():
        command = command[: operators[-1][1]].rstrip()
    starts = [0, *(start + len(operator) for operator, start in _operators(command) if operator in ("&&", "||", ";"))]
    for start in reversed(starts):
        if found := _DETACHED.match(command, start):
            command = command[:start] + (" " if start else "") + command[found.end() :]
    return command


def _guarded(command: str) -> str:
    """Return a test and what follows when it is true as an ``if``, whose status is 0 where it is false."""
    operators = _operators(command)
    if [operator for operator, _ in operators if operator in ("&&", "||", ";", "&", "\n")][:1] != ["&&"]:
        return command
    if any(operator in ("||", ";", "&", "\n") for operator, _ in operators):
        return command
    at = next(start for operator, start in operators if operator == "&&")
    test, rest = command[:at].strip(), command[at + 2 :].strip()
    return f"if {test}; then {rest}; fi" if _TEST.fullmatch(test) else command
