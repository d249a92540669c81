"""Prepares a process for its command in Python, where a shell cannot.

A shell normally sets up the process and then executes the command. dash and busybox drop every variable whose name is
not an identifier, such as ``app.name``. Every shell sets some variables itself, such as IFS. Such variables are passed
around the shell in ``RINGWARD_CARRIED_0``, ``RINGWARD_CARRIED_1`` and so on, encoded in base64. Python restores them
and executes the command. They are not passed as arguments, because every user can read those, and variables can be
secrets.

If a command has another user, no program of the daemon's user may see its variables: with ``LD_PRELOAD``, whoever
writes the command's environment file would choose what root executes. Before the user changes, programs get only the
daemon's own variables and the carriers. A shell of the new user restores the variables, with the values in
``RINGWARD_VALUE_0``, ``RINGWARD_VALUE_1`` and so on.

Python also changes the user where setpriv(1) of util-linux is missing, as on Alpine. It does so after the shell has set
the limits, because the new user may be unable to read Python's files. Afterwards it enters the directory and executes
the command.

Standard library only: the root process loads this.
"""

import binascii
import os
import shlex
import sys
from collections.abc import Collection, Mapping, Sequence

# fmt: off
_SET_BY_SHELLS = frozenset({
    "BASH", "BASHOPTS", "BASHPID", "BASH_ALIASES", "BASH_ARGC", "BASH_ARGV", "BASH_ARGV0", "BASH_CMDS", "BASH_COMMAND",
    "BASH_COMPAT", "BASH_LINENO", "BASH_SOURCE", "BASH_SUBSHELL", "BASH_VERSINFO", "BASH_VERSION", "BASH_XTRACEFD",
    "COMP_WORDBREAKS", "DIRSTACK", "EPOCHREALTIME", "EPOCHSECONDS", "EUID", "FUNCNAME", "GROUPS", "HISTCMD", "IFS",
    "LINENO", "OPTIND", "PIPESTATUS", "PPID", "PS1", "PS2", "PS4", "RANDOM", "SECONDS", "SHELLOPTS", "SHLVL", "SRANDOM",
    "UID",
})
# fmt: on
"""Variables that dash, bash or busybox set or reject, regardless of the environment."""
_OWN = "RINGWARD_"
"""Prefix of the variables that only the daemon sets. They identify the processes of a run, also before the command."""
_CARRIER = f"{_OWN}CARRIED_"
_CARRIER_BYTES = 96 * 1024
"""Size of one carrier; the kernel accepts 128 KiB in one variable."""
_UNASSIGNABLE = _SET_BY_SHELLS - {"SHLVL"}
_SET_BY_CD = frozenset({"PWD", "OLDPWD"})

NO_INTERPRETER = "no such interpreter (first line)"
"""Why a script cannot be executed, for which the kernel says "No such file or directory"."""

NOT_EXECUTABLE = "no such program or interpreter, or permission denied"

# Its arguments are, in this order:
# - "pipe" if standard input is the status pipe, or "" if errors go to standard error
# - the user, the group and the groups, each possibly ""
# - the directory, or ""
# - the file for standard input, the number of its descriptor, or "" to leave standard input unchanged
# - the command
_PROGRAM = """\
import binascii, errno, os, signal, sys
status_flag, uid, gid, groups, cwd, stdin, *argv = sys.argv[1:]
status = os.dup(0) if status_flag else None

def fail(word, what, err, code=125):
    if status is None:
        os.write(2, os.fsencode(f"{what}: {err.strerror}\\n"))
    else:
        os.write(status, f"{word}\\n".encode())
    os._exit(code)

for number in (signal.SIGINT, signal.SIGPIPE, signal.SIGXFSZ):  # which Python changes
    signal.signal(number, signal.SIG_DFL)
with open("/proc/self/environ", "rb") as file:  # os.environ has what Python makes of the locale
    env = dict(entry.split(b"=", 1) for entry in file.read().split(b"\\0") if b"=" in entry)
packed, number = b"", 0
while (part := env.pop(b"RINGWARD_CARRIED_%d" % number, None)) is not None:
    packed, number = packed + part, number + 1
env.update(entry.split(b"=", 1) for entry in binascii.a2b_base64(packed).split(b"\\0") if entry)
if uid:
    try:
        os.setgroups([int(group) for group in groups.split(",")])
        os.setgid(int(gid))
        os.setuid(int(uid))
    except OSError as err:
        fail("", f"cannot become user {uid}", err)
    if status is not None:
        os.write(status, b"user\\n")
if cwd:
    try:
        os.chdir(cwd)
    except OSError as err:
        fail("cwd", cwd, err)
    env[b"PWD"] = os.fsencode(cwd)
env.pop(b"OLDPWD", None)
if stdin.isdigit():
    os.dup2(int(stdin), 0)
    os.close(int(stdin))
elif stdin:
    try:
        source = os.open(stdin, os.O_RDONLY)
    except OSError as err:
        fail("stdin", stdin, err)
    os.dup2(source, 0)
name, code = argv[0], 127
why, missing = OSError(errno.ENOENT, os.strerror(errno.ENOENT)), OSError(errno.ENOENT, "@NO_INTERPRETER@")
folders = env.get(b"PATH", os.fsencode(os.defpath)).split(b":")
for path in [os.fsencode(name)] if "/" in name else [os.path.join(folder, os.fsencode(name)) for folder in folders]:
    try:
        try:
            os.execve(path, argv, env)
        except OSError as err:
            if err.errno != errno.ENOEXEC:
                raise
            os.execve("/bin/sh", ["/bin/sh", path, *argv[1:]], env)  # a script without a first line, as shells do
    except OSError as err:
        if err.errno not in (errno.ENOENT, errno.ENOTDIR):
            code, why = 126, err
        elif code == 127 and os.path.isfile(path):
            why = missing
fail(f"exec {code} {why.strerror}", name, why, code)
""".replace("@NO_INTERPRETER@", NO_INTERPRETER)

# The interpreter of a script is not checked in the directories of the system: shells read the first line byte by byte,
# which can take 2 ms for a binary program.
_FIND = """\
_is_program() {
    [ -f "$1" ] && [ -x "$1" ] || return 1
    case $1 in /bin/*|/sbin/*|/usr/bin/*|/usr/sbin/*) return 0 ;; esac
    RINGWARD_WORD= RINGWARD_NEXT=
    [ ! -r "$1" ] || read -r RINGWARD_WORD RINGWARD_NEXT <"$1"
    case $RINGWARD_WORD in
        '#!') [ -x "${RINGWARD_NEXT%%[[:space:]]*}" ] ;;
        '#!'*) [ -x "${RINGWARD_WORD#??}" ] ;;
    esac
}
_is_found() {
    case $1 in */*) _is_program "$1"; return ;; esac
    RINGWARD_PATH=$PATH:
    while [ -n "$RINGWARD_PATH" ]; do
        RINGWARD_WORD=${RINGWARD_PATH%%:*}
        ! _is_program "${RINGWARD_WORD:-.}/$1" || return 0
        RINGWARD_PATH=${RINGWARD_PATH#*:}
    done
    return 1
}
"""


def is_identifier(name: str) -> bool:
    """Return whether every shell accepts the name of a variable."""
    return name.isascii() and name.isidentifier()


def lost_in_shells(env: Mapping[str, str], chosen: Collection[str]) -> dict[str, str]:
    """Return the variables that would not reach a command through a shell.

    Args:
        env: The environment of the command.
        chosen: The names that the configuration sets. A shell may change others, such as an inherited SHLVL.
    """
    return {
        name: value
        for name, value in env.items()
        if not is_identifier(name) or (name in _SET_BY_SHELLS and name in chosen)
    }


class FirstEnvironment:
    """The environment of the shell that prepares a command, and how the command gets its own.

    Args:
        env: The environment of the command.
        chosen: The names that the configuration sets.
        other_user: Whether the user changes before the command executes.
        by_python: Whether Python must change the user.
    """

    def __init__(
        self, env: Mapping[str, str], chosen: Collection[str], *, other_user: bool, by_python: bool = False
    ) -> None:
        self.lost = lost_in_shells(env, chosen)
        """The variables that would not reach the command through a shell."""
        self.by_python = bool(self.lost)
        """Whether Python executes the command, because it must restore variables or change the user."""
        self.restore = ""
        """Shell commands by which a shell of the new user restores the variables."""
        self.carriers: dict[str, str] = {}
        """The variables that contain the values to restore, by the names of the command's variables."""
        if not other_user:
            self.variables = carried(env, self.lost)
            """The environment of the shell."""
            return
        others = {name: value for name, value in env.items() if not name.startswith(_OWN)}
        assigned = [name for name in others if name not in _SET_BY_CD]
        self.by_python = (
            by_python
            or not others.keys().isdisjoint(_UNASSIGNABLE | self.lost.keys())
            or any(len(os.fsencode(others[name])) > _CARRIER_BYTES for name in assigned)
        )
        if self.by_python:
            self.variables = carried(env, others)
            return
        self.carriers = {name: f"{_OWN}VALUE_{number}" for number, name in enumerate(assigned)}
        self.variables = {name: value for name, value in env.items() if name not in others}
        self.variables |= {carrier: others[name] for name, carrier in self.carriers.items()}
        if assigned:
            words = " ".join(f'{name}="${carrier}"' for name, carrier in self.carriers.items())
            self.restore = f"export {words}; unset {' '.join(self.carriers.values())}; "


def carried(env: Mapping[str, str], lost: Mapping[str, str]) -> dict[str, str]:
    """Return the environment for the shell, in which carriers replace the variables that would be lost."""
    packed = b"\0".join(os.fsencode(f"{name}={value}") for name, value in lost.items())
    text = binascii.b2a_base64(packed, newline=False).decode()
    parts = [text[at : at + _CARRIER_BYTES] for at in range(0, len(text), _CARRIER_BYTES)]
    direct = {name: value for name, value in env.items() if name not in lost}
    return direct | {f"{_CARRIER}{number}": part for number, part in enumerate(parts)}


def without_carriers(env: Sequence[bytes], lost: Sequence[bytes]) -> list[bytes]:
    """Return the command's entries ``NAME=VALUE``: its shell's environment, with the carriers replaced by `lost`."""
    return [entry for entry in env if not entry.startswith(_CARRIER.encode())] + list(lost)


def command_line(
    argv: Sequence[str],
    *,
    status_pipe: bool,
    user: tuple[int, int, Sequence[int]] | None,
    cwd: str | None,
    stdin: str | int | None = None,
) -> list[str]:
    """Return the command line of the Python program that prepares the process and executes a command.

    Args:
        argv: The command to execute.
        status_pipe: Whether standard input is the status pipe of :mod:`supervisor.root.spawn.shim`, for error reports.
        user: The ids of the user, group and groups to change to; None: no change.
        cwd: The directory to enter; None: no change.
        stdin: The file to open as standard input, or its descriptor; None: no change.
    """
    uid, gid, groups = ("", "", "") if user is None else (str(user[0]), str(user[1]), joined_groups(*user[1:]))
    python = [sys.executable, "-I", "-S", "-c", _PROGRAM]
    status_flag = "pipe" if status_pipe else ""
    return [*python, status_flag, uid, gid, groups, cwd or "", "" if stdin is None else str(stdin), *argv]


def report_missing(*, status_pipe: bool, stdin: str | None) -> str:
    """Return shell commands that report "$@" if it does not look like a program.

    A shell that cannot execute a command writes a message into the command's output. So Python tries it instead, and
    reports the kernel's reason, unless the user of the command may not execute our Python.

    Args:
        status_pipe: As for :func:`command_line`.
        stdin: The file for standard input, as a word of the shell; None: Python cannot be used.
    """
    refuse = (
        f'_fail "exec 127 {NOT_EXECUTABLE}"' if status_pipe else f'{{ echo "$1: {NOT_EXECUTABLE}" >&2; exit 127; }}'
    )
    if stdin is not None:
        python = command_line([], status_pipe=status_pipe, user=None, cwd=None)[:-1]
        refuse = f'{{ [ ! -x {shlex.quote(python[0])} ] || exec {shlex.join(python)} {stdin} "$@"; {refuse}; }}'
    return f'{_FIND}[ -z "$PATH" ] || _is_found "$1" || {refuse}\n'


def joined_groups(gid: int | None, groups: Sequence[int]) -> str:
    """Return the ids of a user's groups, separated by commas as for setpriv(1); without any, only `gid`."""
    return ",".join(map(str, groups)) or str(gid)


def setpriv() -> str | None:
    """Return the path of util-linux's setpriv; None if it is missing. The setpriv of busybox cannot change the user."""
    for directory in ("/usr/bin", "/bin", "/usr/sbin", "/sbin"):
        path = f"{directory}/setpriv"
        if os.access(path, os.X_OK) and os.path.basename(os.path.realpath(path)) == "setpriv":
            return path
    return None
