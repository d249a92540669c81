"""Names for the jobs of crontabs, which have none there: of the program that does the work."""

import os
import re

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
"""Programs that run the one that follows, and their options that take a value."""
_ASIDE = frozenset({
    "cd", "test", "[", "[[", "source", ".", "true", "false", "yes", "echo", "printf", "sleep", "set", "export",
    "ulimit", "umask", "for", "case", ":", "wait", "eval", "kill", "exit", "date", "mkdir", "touch", "cat",
})
"""Commands that prepare another one, as a rule."""
# fmt: on
_STATUSES = frozenset({"true", "false", "test"})
"""Commands that do nothing."""


def name_of(command: str) -> str:
    """Return a name for a command: of the first program that does the work, or of its script; else ``task``."""
    aside = ""
    for words in _commands(_ARITHMETIC.sub("0", command)):
        program, script = _program(words)
        found = next((name for name in (_bare(script), _bare(program)) if _PLAIN.fullmatch(name)), "")
        if found and os.path.basename(program) not in _ASIDE:
            return found
        aside = aside or (found if found not in _STATUSES else "")
    return aside or "task"


def _commands(command: str) -> list[list[str]]:
    found: list[list[str]] = [[]]
    for word in _WORD.findall(command):
        if _SEPARATOR.fullmatch(word):
            found.append([])
        elif word[0] not in "<>":
            found[-1].append(word)
    return [words for words in found if words]


def _program(words: list[str]) -> tuple[str, str]:
    """Return the program of a command behind keywords and wrappers, and the script that it interprets."""
    rest = [word.strip("\"'") for word in words]
    while rest and (rest[0] in _KEYWORDS or _ASSIGNMENT.match(rest[0])):
        rest.pop(0)
    while rest and (wrapper := os.path.basename(rest[0])) in _WRAPPERS:
        rest = _unwrapped(wrapper, rest[1:])
    if not rest:
        return "", ""
    program = os.path.basename(rest[0])
    if program in ("su", "runuser") or program not in _INTERPRETERS:
        return rest[0], ""
    if "-c" in rest[1:-1]:
        return "", name_of(rest[rest.index("-c") + 1])
    return rest[0], next((word for word in rest[1:] if not word.startswith("-")), "")


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
    """Return the last part of a path, without the end that says which language it is in."""
    name = os.path.basename(word)
    stem, end = os.path.splitext(name)
    return stem if end in (".sh", ".py", ".pl", ".rb", ".php", ".js", ".bash", ".jar", ".cgi", ".bat") else name
