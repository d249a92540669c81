"""Prepare a process for its command in Python, where a shell cannot.

dash and busybox drop every variable whose name is not an identifier, such as ``app.name``. Every shell sets some
variables itself, such as IFS. A run whose variables would not survive the shell in front of its command carries them
past it in ``RINGWARD_CARRIED_0``, ``RINGWARD_CARRIED_1`` and so on; Python puts them back and executes the command.
Arguments would not do: every user can read the arguments of a process, and variables may be secrets.

Python changes the user, too, where setpriv(1) of util-linux is missing (Alpine). It does so before it enters the
directory and executes the command, and after the shell, which sets the limits: the user may be unable to read Python.

Standard library only: the root process loads this.
"""

import binascii
import os
import sys
from collections.abc import Collection, Mapping, Sequence

# fmt: off
_SET_BY_SHELLS = frozenset({
    "BASH", "BASHOPTS", "BASHPID", "BASH_ARGV0", "BASH_COMMAND", "BASH_SUBSHELL", "BASH_VERSINFO", "BASH_VERSION",
    "COMP_WORDBREAKS", "EPOCHREALTIME", "EPOCHSECONDS", "HISTCMD", "IFS", "LINENO", "OPTIND", "PPID", "PS1", "PS2",
    "PS4", "RANDOM", "SHELLOPTS", "SHLVL", "SRANDOM",
})
# fmt: on
"""Variables that dash, bash or busybox set, or refuse, whatever the environment has."""
_CARRIER = "RINGWARD_CARRIED_"
_CARRIER_BYTES = 96 * 1024
"""Of one carrier; the kernel takes 128 KiB in one variable."""

# Arguments: "pipe" when standard input is the status pipe, else "" (errors go to standard error). User, group and
# groups, or "". Directory, or "". File for standard input, "4" for that descriptor, or "" to leave it. The command.
_PROGRAM = """\
import binascii, errno, os, signal, sys
told, uid, gid, groups, cwd, stdin, *argv = sys.argv[1:]
status = os.dup(0) if told else None

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
if stdin == "4":
    os.dup2(4, 0)
    os.close(4)
elif stdin:
    try:
        source = os.open(stdin, os.O_RDONLY)
    except OSError as err:
        fail("stdin", stdin, err)
    os.dup2(source, 0)
name, code = argv[0], 127
why = OSError(errno.ENOENT, os.strerror(errno.ENOENT))
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
fail(f"exec {code}", name, why, code)
"""


def is_identifier(name: str) -> bool:
    """Return whether every shell takes the name of a variable."""
    return name.isascii() and name.isidentifier()


def lost_in_shells(env: Mapping[str, str], chosen: Collection[str]) -> dict[str, str]:
    """Return the variables that do not reach a command behind a shell.

    Args:
        env: the environment of the command.
        chosen: names that the configuration sets. Other changes by a shell, such as SHLVL, do not matter.
    """
    return {
        name: value
        for name, value in env.items()
        if not is_identifier(name) or (name in _SET_BY_SHELLS and name in chosen)
    }


def carried(env: Mapping[str, str], lost: Mapping[str, str]) -> dict[str, str]:
    """Return an environment for the shell in which carriers stand for the variables that would be lost."""
    packed = b"\0".join(os.fsencode(f"{name}={value}") for name, value in lost.items())
    text = binascii.b2a_base64(packed, newline=False).decode()
    parts = [text[at : at + _CARRIER_BYTES] for at in range(0, len(text), _CARRIER_BYTES)]
    kept = {name: value for name, value in env.items() if name not in lost}
    return kept | {f"{_CARRIER}{number}": part for number, part in enumerate(parts)}


def without_carriers(env: Sequence[bytes], lost: Sequence[bytes]) -> list[bytes]:
    """Return the entries ``NAME=VALUE`` for the command, from the entries for its shell and the lost ones."""
    return [entry for entry in env if not entry.startswith(_CARRIER.encode())] + list(lost)


def command_line(
    argv: Sequence[str],
    *,
    status_pipe: bool,
    user: tuple[int, int, Sequence[int]] | None,
    cwd: str | None,
    stdin: str | int | None = None,
) -> list[str]:
    """Return the command by which a process becomes another one.

    Args:
        argv: the command to execute in the end.
        status_pipe: standard input is the status pipe of :mod:`supervisor.root.spawn.shim`, which takes error reports.
        user: user, group and groups to change to.
        cwd: the directory to enter.
        stdin: the file to open as standard input, or its descriptor, which is 4.
    """
    uid, gid, groups = ("", "", "") if user is None else (str(user[0]), str(user[1]), joined_groups(*user[1:]))
    python = [sys.executable, "-I", "-S", "-c", _PROGRAM]
    told = "pipe" if status_pipe else ""
    return [*python, told, uid, gid, groups, cwd or "", "" if stdin is None else str(stdin), *argv]


def joined_groups(gid: int | None, groups: Sequence[int]) -> str:
    """Return the groups of a user, or the only one, as setpriv(1) takes them."""
    return ",".join(map(str, groups)) or str(gid)


def setpriv() -> str | None:
    """Return where util-linux has its setpriv; the one of busybox cannot change the user."""
    for directory in ("/usr/bin", "/bin", "/usr/sbin", "/sbin"):
        path = f"{directory}/setpriv"
        if os.access(path, os.X_OK) and os.path.basename(os.path.realpath(path)) == "setpriv":
            return path
    return None
