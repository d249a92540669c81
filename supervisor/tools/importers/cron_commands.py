"""Converts the commands of crontabs, and names them.

Cron runs ``SHELL -c COMMAND``, ignores the exit code and leaves background processes running. Ringward runs
``SHELL -e -c COMMAND``, treats exit codes other than 0 as failures, and ends a run with its command.
"""

import os
import re
from collections.abc import Iterator
from dataclasses import dataclass

_WORD = re.compile(r"""(?:"(?:[^"\\]|\\.)*"|'[^']*'|\\.|[^\s;&|()<>"'])+|[<>]+&?\s*\S*|&&|\|\||[;&|()\n]""")
_SEPARATOR = re.compile(r"&&|\|\||[;&|()\n]")
_NUMBER = re.compile(r"[\d.,:+-]+[a-zA-Z%]?")
_ASSIGNMENT = re.compile(r"[A-Za-z_]\w*=")
_PLAIN = re.compile(r"[A-Za-z][\w.+@-]*")
_ARITHMETIC = re.compile(r"\$\(\([^)]*\)\)")
# fmt: off
_KEYWORDS = frozenset({"if", "then", "else", "elif", "fi", "while", "until", "do", "done", "!", "{", "}", "time"})
_INTERPRETERS = frozenset({
    "sh", "bash", "dash", "zsh", "ksh", "python", "python2", "python3", "perl", "ruby", "php", "node", "java",
})
_WRAPPERS = {
    "nice": "n", "ionice": "cnp", "timeout": "ks", "env": "uCS", "sudo": "ugh", "flock": "wE", "chrt": "", "time": "",
    "taskset": "", "command": "", "exec": "a", "nohup": "", "setsid": "", "cronic": "", "chronic": "", "stdbuf": "ioe",
    "systemd-cat": "tp", "runuser": "ug", "su": "sg", "xargs": "nIPL", "unbuffer": "", "doas": "u", "setpriv": "",
}
"""Programs that run the command that follows them, and their options that take a value."""
ASIDE = frozenset({
    "cd", "test", "[", "[[", "source", ".", "true", "false", "yes", "echo", "printf", "sleep", "set", "export",
    "ulimit", "umask", "for", "case", ":", "wait", "eval", "kill", "exit", "date", "mkdir", "touch", "cat",
})
"""Built-in and small commands that usually only prepare for another command."""
# fmt: on
_STATUSES = frozenset({"true", "false", "test"})
"""Commands that do nothing."""


def name_of(command: str) -> str:
    """Return a name for a command: that of the first program or script that does the work, or else ``task``."""
    aside = ""
    for words in _commands(_ARITHMETIC.sub("0", command)):
        program, script = _program(words)
        plain_name = next((name for name in (_bare(script), _bare(program)) if _PLAIN.fullmatch(name)), "")
        if plain_name and os.path.basename(program) not in ASIDE:
            return plain_name
        aside = aside or (plain_name if plain_name not in _STATUSES else "")
    return aside or "task"


def _commands(command: str) -> list[list[str]]:
    commands: list[list[str]] = [[]]
    for word in _WORD.findall(command):
        if _SEPARATOR.fullmatch(word):
            commands.append([])
        elif word[0] not in "<>":
            commands[-1].append(word)
    return [words for words in commands if words]


def _program(words: list[str]) -> tuple[str, str]:
    """Return the program of a command, without keywords and wrappers, and the script that the program interprets."""
    remaining = [word.strip("\"'") for word in words]
    while remaining and (remaining[0] in _KEYWORDS or _ASSIGNMENT.match(remaining[0])):
        remaining.pop(0)
    while remaining and (wrapper := os.path.basename(remaining[0])) in _WRAPPERS:
        remaining = _unwrapped(wrapper, remaining[1:])
    if not remaining:
        return "", ""
    program = os.path.basename(remaining[0])
    if program in ("su", "runuser") or program not in _INTERPRETERS:
        return remaining[0], ""
    if "-c" in remaining[1:-1]:
        return "", name_of(remaining[remaining.index("-c") + 1])
    return remaining[0], next((word for word in remaining[1:] if not word.startswith("-")), "")


def _unwrapped(wrapper: str, words: list[str]) -> list[str]:
    """Return the command that a wrapper runs."""
    words = list(words)
    lock = wrapper == "flock"
    while words:
        word = words[0]
        if word == "-c" and wrapper in ("flock", "su", "runuser"):
            return _commands(words[1])[0] if len(words) > 1 and _commands(words[1]) else []
        if word.startswith("-") and len(word) > 1:
            takes_value = word[1:] in tuple(_WRAPPERS[wrapper]) and len(words) > 1
            words = words[2 if takes_value else 1 :]
        elif word == "-" or _ASSIGNMENT.match(word) or _NUMBER.fullmatch(word):
            words = words[1:]
        elif lock:
            words, lock = words[1:], False
        elif wrapper in ("su", "runuser") and "-c" in words:
            words = words[words.index("-c") :]
        else:
            return words
    return []


def _bare(word: str) -> str:
    """Return the last component of a path, without the file name extension of a script."""
    name = os.path.basename(word)
    stem, end = os.path.splitext(name)
    return stem if end in (".sh", ".py", ".pl", ".rb", ".php", ".js", ".bash", ".jar", ".cgi", ".bat") else name


_QUOTED = r"'[^']*'|\"(?:[^\"\\]|\\.)*\"|\\.|`[^`]*`"
_TOKEN = re.compile(
    rf"""(?P<space>[ \t]+)|(?P<comment>(?<![^\s;&|()])\#[^\n]*)|(?P<open>\$?\()|(?P<close>\))
    |(?P<operator>&>>|&>|>&|<&|&&|\|&|\|\||;|&|\||\n)|(?P<word>(?:{_QUOTED}|[^\s;&|<>()'"\\`])+)|.""",
    re.DOTALL | re.VERBOSE,
)
_OPENING = {"if": "fi", "case": "esac", "for": "done", "while": "done", "until": "done", "{": "}"}
_BEFORE_COMMANDS = frozenset({"if", "then", "else", "elif", "while", "until", "do", "!", "{", "time"})
_DETACHED = re.compile(r"\s*(?:(?:nohup|setsid)(?:\s+(?:--\w+|-\w+))*\s+)+(?=\S)")
_ENDS = frozenset({";", "&", "\n"})
"""Operators that end a list of commands."""
_BASH = frozenset({"bash", "zsh"})
_SHELLS = frozenset({"sh", "dash", "ash", "ksh", "mksh", *_BASH})
_TESTS = frozenset({"[", "[[", "test", "which", "type", "hash", "grep", "egrep", "fgrep", "zgrep", "pgrep", "pidof"})
_TESTS |= {"mountpoint", "cmp", "diff", "ping", "nc", "expr", "let", "ps", "on_ac_power"}
"""Programs that people use as a test: the exit code 1 means false."""
_LOOKUP = re.compile(r"\b(?:command\s+-[vV]|type|hash)\s")
"""The pattern of built-in commands that look for a program. Some shells return 127 if there is none."""
_TEST_COMMAND = re.compile(r"!\s|\(\(|command\s+-[vV]\s|kill\s+-0\s|systemctl\s+(?:-\S+\s+)*is-")


@dataclass(frozen=True)
class Command:
    """A converted command, with notes about the conversion."""

    run: str | list[str]
    """The value of the key ``run``, which is a list if ``-e`` would change the behaviour of the command."""
    advice: tuple[str, ...]


def as_run(command: str, shell: str, *, input_text: str = "") -> Command:
    """Convert a command to the value of the key ``run``.

    Args:
        command: The command that cron passes to the shell.
        shell: The shell of the job.
        input_text: The here-document with the command's input; empty: there is none.
    """
    advice = []
    name = os.path.basename(shell)
    command = _without_comment(command)
    if name not in _BASH and (text := _both_redirected(command)) != command:
        command = text
        advice.append(f"&> is bash syntax, which {shell} may read as &; written as > FILE 2>&1")
    if (text := _foreground(command)) != command:
        command = text
        advice.append("stays in the foreground here: the run lasts as long as the command")
    stops = stops_with_e(command)
    advice += [
        f"the run fails if {text} fails; write it with if, if that is no failure" for text in _not_tests(command)
    ]
    if name in _SHELLS and (text := _guarded(command)) != command:
        command = text
        advice.append("a false test is not a failure here either: written with if")
    text = f"{{ {command}\n}} {input_text}" if input_text else command
    return Command([shell, "-c", text] if stops else text, tuple(advice))


def stops_with_e(command: str) -> bool:
    """Return whether the shell option ``-e`` may end the command earlier: after the first part that fails."""
    return any(operator.text in _ENDS for operator in _operators(command))


@dataclass(frozen=True)
class _Operator:
    text: str
    at: int
    """Its index in the command."""
    depth: int
    """The number of groups around it: parentheses, braces, ``if``, loops."""

    @property
    def end(self) -> int:
        return self.at + len(self.text)


def _tokens(command: str) -> Iterator[tuple[str, str, int, int]]:
    """Yield the kind, text, index and depth of each token; a quoted text belongs to a word."""
    closing: list[str] = []
    starts_command = True
    for match in _TOKEN.finditer(command):
        kind, text = match.lastgroup, match[0]
        if kind == "open":
            closing.append(")")
        elif closing and text == closing[-1] and (starts_command or kind == "close"):
            closing.pop()
        elif starts_command and text in _OPENING:
            closing.append(_OPENING[text])
        yield kind or "", text, match.start(), len(closing)
        if kind != "space":
            prefix = text in _BEFORE_COMMANDS or _ASSIGNMENT.match(text) is not None
            starts_command = kind in ("open", "operator") or (starts_command and prefix)


def _operators(command: str) -> list[_Operator]:
    """Return the shell operators outside quotes and comments."""
    return [_Operator(text, at, depth) for kind, text, at, depth in _tokens(command) if kind == "operator"]


def _without_comment(command: str) -> str:
    return command[: next((at for kind, _, at, _ in _tokens(command) if kind == "comment"), len(command))].rstrip()


def _both_redirected(command: str) -> str:
    for operator in reversed(_operators(command)):
        target = re.match(rf"\s*(?:{_QUOTED}|[^\s;&|<>()])+", command[operator.end :])
        if operator.text in ("&>>", "&>") and target:
            end = operator.end + target.end()
            command = f"{command[: operator.at]}{operator.text[1:]}{target[0]} 2>&1{command[end:]}"
    return command


def _foreground(command: str) -> str:
    """Return the command without a trailing ampersand and without nohup and setsid, which would detach it.

    Commands before another ampersand stay in the background, as the command behind it expects.
    """
    operators = [operator for operator in _operators(command) if operator.depth == 0]
    if operators and operators[-1].text == "&" and not command[operators[-1].end :].strip():
        command = command[: operators.pop().at].rstrip()
    end = ""
    for operator in (*reversed(operators), _Operator("", 0, 0)):
        start = operator.end
        if operator.text in ("&&", "||", *_ENDS, "") and end != "&" and (match := _DETACHED.match(command, start)):
            command = command[:start] + (" " if start else "") + command[match.end() :]
        end = operator.text if operator.text in _ENDS else end
    return command


@dataclass(frozen=True)
class _Conditional:
    """The last list of commands, ``A && B && X``, whose exit code is that of the whole command."""

    start: int
    """Its index in the command."""
    conditions: list[str]
    """The commands before the last ``&&``; with ``||`` among them, all of them as one."""
    action: str
    """The command behind the last ``&&``."""


def _conditional(command: str) -> _Conditional | None:
    """Return the last list of commands; None if it does not end with ``&& COMMAND``."""
    operators = [operator for operator in _operators(command) if operator.depth == 0]
    if operators and operators[-1].text in _ENDS and not command[operators[-1].end :].strip():
        command = command[: operators.pop().at]
    start = max((operator.end for operator in operators if operator.text in _ENDS), default=0)
    links = [operator for operator in operators if operator.at >= start and operator.text in ("&&", "||")]
    if not links or links[-1].text != "&&":
        return None
    first = links if all(link.text == "&&" for link in links) else links[-1:]
    conditions = _between(command[: links[-1].at], start, first[:-1])
    return _Conditional(start, conditions, command[links[-1].end :].strip())


def _between(text: str, start: int, operators: list[_Operator]) -> list[str]:
    """Return the parts of a text between operators, without empty ones."""
    starts = [start, *(operator.end for operator in operators)]
    ends = [*(operator.at for operator in operators), len(text)]
    return [part for first, last in zip(starts, ends, strict=True) if (part := text[first:last].strip())]


def _guarded(command: str) -> str:
    """Rewrite ``[ TEST ] && COMMAND`` with ``if``, so that a test that is false is not a failure.

    A test that ends with another exit code than 1 has failed, for example because the shell does not know its syntax.
    That stays a failure.
    """
    if (last := _conditional(command)) is None or not any(map(_is_test, last.conditions)):
        return command
    action = last.action
    tests: list[str] = []
    for condition in reversed(last.conditions):
        if _is_test(condition):
            tests.insert(0, condition)
        else:
            action, tests = f"{condition} && {_with_if(tests, action)}", []
    return f"{command[: last.start]}{' ' if last.start else ''}{_with_if(tests, action)}"


def _with_if(tests: list[str], action: str) -> str:
    if not tests:
        return action
    condition = " && ".join(tests)
    return f"if {condition}; then {action}; {'' if _LOOKUP.search(condition) else 'else [ $? -eq 1 ]; '}fi"


def _is_test(command: str) -> bool:
    """Return whether exit code 1 of a command means that something is false."""
    operators = [operator for operator in _operators(command) if operator.depth == 0]
    if lists := [operator for operator in operators if operator.text in ("&&", "||", *_ENDS)]:
        return all(map(_is_test, _between(command, 0, lists)))
    if command[:1] + command[-1:] in ("()", "{}") and command[:2] != "((":
        return _is_test(command[1:-1].strip())
    last = _between(command, 0, [operator for operator in operators if operator.text == "|"])[-1:]
    program = os.path.basename(last[0].split()[0]) if last else ""
    return program in _TESTS or any(map(_TEST_COMMAND.match, last))


def _not_tests(command: str) -> list[str]:
    """Return the commands before the last ``&&`` that can fail, other than those that only prepare for another."""
    last = _conditional(command)
    conditions = [] if last is None else [text for text in last.conditions if not _is_test(text)]
    programs = [(text, _program(text.split())[0]) for text in conditions]
    return [text for text, program in programs if program and os.path.basename(text.split()[0]) not in ASIDE]
