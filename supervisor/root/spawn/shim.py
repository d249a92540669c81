"""The shell that prepares a run and then executes its command.

posix_spawn(3) can change neither the directory nor the user. It also blocks the root until the child has executed a
program, so a command on a hung network mount would stop everything. The root therefore executes only ``/bin/sh``, which
prepares the run and finally executes the command::

    cgroup -> umask -> limits -> niceness -> user -> directory -> command

A run that is a script for ``/bin/sh`` needs no second shell if it only needs a cgroup, a umask or the original limit on
descriptors. Builtin commands for these precede the script on its first line, which keeps its line numbers. Other runs
get a status pipe as standard input, on which the shell reports errors by line::

    cgroup         the cgroup cannot be joined
    limit NAME     this limit cannot be set
    user           the user was changed; if this line is missing, it could not be changed
    cwd            the working directory cannot be entered
    stdin          the file for standard input cannot be opened
    start ERRNO    the shell itself cannot be executed (reported by the pre-forked child)
    exec 127 TEXT  the command was not found, or its interpreter is missing
    exec 126 TEXT  the command cannot be executed; without TEXT, a shell has written the reason to standard error
    end of file    the command is running

During ``exec``, the shell's saved copy of the pipe is close-on-exec, so executing the command closes it. If ``exec``
fails, the shell restores the copy, and the trap (in bash, the next line) reports the error. This was tested with dash,
busybox and bash.

setpriv(1) of util-linux changes the user. Where it is missing (Alpine), or if the run has variables that a shell would
lose, our own Python takes all steps after the limits (:mod:`supervisor.host.prepared_command`), in about 10 ms. Until
the user has changed, no program sees the variables of the run.
"""

import os
import shlex
from collections.abc import Mapping

from supervisor.host import prepared_command
from supervisor.host.prepared_command import FirstEnvironment
from supervisor.ipc.messages import Spawn

SHELL = "/bin/sh"
FIRST_FD = 3
"""The first descriptor after the standard ones: the first of the sockets that a run gets. A script without a status
pipe gets none, and finds here the file that adds it to its cgroup."""

_MAX_ARGUMENT_BYTES = 128 * 1024 - 1
"""MAX_ARG_STRLEN of execve(2) without the final NUL."""
_PREFIX_BYTES = 200

_JOIN = f"echo 0 >&{FIRST_FD}; exec {FIRST_FD}>&-; "
_BEGIN = """\
trap 'RINGWARD_STATUS=$?; case $RINGWARD_STATUS in 126|127) echo "exec $RINGWARD_STATUS" >&0;; esac' EXIT
[ -z "$BASH_VERSION" ] || shopt -s execfail 2>/dev/null
_fail() { echo "$1" >&0; exit 125; }
"""
_END = """\
if [ -n "$1" ]; then cd -- "$1" 2>/dev/null || _fail cwd; fi
RINGWARD_STDIN=$2
shift 2
unset OLDPWD
@REPORT_MISSING@RINGWARD_OPENED=
{ RINGWARD_OPENED=1; exec "$@"; } @STDIN@
RINGWARD_CODE=$?
[ -n "$RINGWARD_OPENED" ] || _fail stdin
exit $RINGWARD_CODE
"""
_FROM_FILE = '<"$RINGWARD_STDIN"'
_PYTHON = """\
exec "$@"
exit $?
"""
_OTHER_USER = """\
trap - EXIT
exec "$@"
"""
_SYSTEM_PATH = "PATH=/usr/sbin:/usr/bin:/sbin:/bin\n"
"""The search path of the shell that changes the user; it is not exported."""
_BLOCK_BYTES = 512
_KB = 1024
# The command that sets each limit, soft and hard, and its unit. The cgroup limits memory and cpu. POSIX counts file
# sizes in blocks of 512 bytes. If both limits of processor time were the same, the kernel would send SIGKILL at once,
# which says nothing about the reason.
_LIMITS: Mapping[str, tuple[str, int]] = {
    "address_space": ("ulimit -v {0} 2>/dev/null", _KB),
    "cpu_time": ("{{ ulimit -S -t {0} && {{ ulimit -H -t $(({0} + 1)) || :; }}; }} 2>/dev/null", 1),
    "nofile": ("ulimit -n {0} 2>/dev/null", 1),
    "nproc": ("{{ ulimit -p {0} || ulimit -u {0}; }} 2>/dev/null", 1),  # dash and busybox, or bash
    "core": ("ulimit -c {0} 2>/dev/null", _BLOCK_BYTES),
    "file_size": ("ulimit -f {0} 2>/dev/null", _BLOCK_BYTES),
    "stack": ("ulimit -s {0} 2>/dev/null", _KB),
    "memlock": ("ulimit -l {0} 2>/dev/null", _KB),
    "oom_score_adj": ("{{ echo {0} >/proc/self/oom_score_adj; }} 2>/dev/null", 1),
    "nice": ("renice {0} -p $$ >/dev/null 2>&1", 1),
}


def wrapped(spawn: Spawn, nofile: int | None, first: FirstEnvironment, procs: str | None) -> tuple[list[str], bool]:
    """Return the command line to execute for a run, and whether its standard input is a status pipe.

    Args:
        spawn: The request.
        nofile: The original soft limit on descriptors, if we have raised it.
        first: How the command gets its environment. A command line without a status pipe needs no such help.
        procs: The file by which the process must join a cgroup, if any.
    """
    bare = not (spawn.cwd or spawn.uid is not None or _limited(spawn) or spawn.stdin_file or spawn.sockets)
    text = spawn.argv[-1]
    short = len(text.encode("utf-8", "surrogateescape")) < _MAX_ARGUMENT_BYTES - _PREFIX_BYTES
    if bare and short and spawn.argv[:-1] == [SHELL, "-e", "-c"]:
        join = _JOIN if procs is not None else ""
        return [SHELL, "-e", "-c", join + _builtins(spawn, nofile) + text], False
    if bare and spawn.argv[0] == SHELL and spawn.umask is None and nofile is None and procs is None:
        return spawn.argv, False
    join = "" if procs is None else f"{{ echo 0 >{shlex.quote(procs)}; }} 2>/dev/null || _fail cgroup\n"
    preamble = _BEGIN + join + _builtins(spawn, nofile) + "\n" + _limits(spawn)
    pipe = stdin_fd(spawn)
    stdin, source = (f"<&{pipe} {pipe}<&-", str(pipe)) if spawn.stdin_open else (_FROM_FILE, '"$RINGWARD_STDIN"')
    # A limit, such as one of memory, may be too low for Python.
    missing = prepared_command.report_missing(status_pipe=True, stdin=None if _limited(spawn) else source)
    end = _END.replace("@STDIN@", stdin).replace("@REPORT_MISSING@", missing)
    command = ["ringward", spawn.cwd or "", spawn.stdin_file or "/dev/null", *spawn.argv]
    if spawn.uid is not None:
        preamble = _SYSTEM_PATH + preamble
    if first.by_python:
        return [SHELL, "-c", preamble + _PYTHON, "ringward", *_by_python(spawn)], True
    if spawn.uid is None:
        return [SHELL, "-c", preamble + end, *command], True
    inner = [SHELL, "-c", f"echo user >&0\n{_BEGIN}{first.restore}\n{end}", *command]
    return [SHELL, "-c", preamble + _OTHER_USER, "ringward", *_to_user(spawn), *inner], True


def stdin_fd(spawn: Spawn) -> int:
    """Return the descriptor on which a child with a status pipe finds its standard input, if that stays open.

    dash knows no descriptor above 9, so the configuration allows such a run only a few sockets.
    """
    return FIRST_FD + len(spawn.sockets)


def candidates(spawn: Spawn, env: Mapping[str, str]) -> list[str]:
    """Return the possible paths of the command, in the order of a shell; empty if only a shell can execute it.

    A shell is needed to change the user, to set limits, to open standard input, or to search without PATH.
    """
    name = spawn.argv[0]
    if spawn.stdin_file:
        return []
    if spawn.uid is not None or _limited(spawn) or not (spawn.cwd is None or os.path.isabs(spawn.cwd)):
        return []
    if "/" in name:
        return [name]
    return [os.path.join(directory, name) for directory in env["PATH"].split(":")] if env.get("PATH") else []


def _builtins(spawn: Spawn, nofile: int | None) -> str:
    parts = []
    if nofile is not None:
        parts.append(f"ulimit -Sn {nofile}; ")
    if spawn.umask is not None:
        parts.append(f"umask {spawn.umask:04o}; ")
    if spawn.sockets:
        parts.append("export LISTEN_PID=$$; ")
    return "".join(parts)


def _limited(spawn: Spawn) -> bool:
    """Return whether the run has limits that the shell sets."""
    return not _LIMITS.keys().isdisjoint(spawn.limits)


def _limits(spawn: Spawn) -> str:
    lines = []
    for name, (command, unit) in _LIMITS.items():
        value = spawn.limits.get(name)
        if value is not None:
            amount = "unlimited" if value == -1 and unit > 1 else str(int(value) // unit)
            lines.append(f'{command.format(amount)} || _fail "limit {name}"\n')
    return "".join(lines)


def _to_user(spawn: Spawn) -> list[str]:
    groups = prepared_command.joined_groups(spawn.gid, spawn.groups)
    return [SETPRIV or "setpriv", f"--reuid={spawn.uid}", f"--regid={spawn.gid}", f"--groups={groups}"]


def _by_python(spawn: Spawn) -> list[str]:
    """Return the command with which our own Python takes all steps after the limits."""
    user = None if spawn.uid is None or spawn.gid is None else (spawn.uid, spawn.gid, spawn.groups)
    stdin = stdin_fd(spawn) if spawn.stdin_open else spawn.stdin_file or "/dev/null"
    return prepared_command.command_line(spawn.argv, status_pipe=True, user=user, cwd=spawn.cwd, stdin=stdin)


SETPRIV = prepared_command.setpriv()
"""The program with which a shell changes the user; None: Python changes it."""


def explain(spawn: Spawn, words: str) -> str | None:
    """Return the shim's report in words for the log of the run; None: the command was executed."""
    if words.startswith("start "):
        return f"could not start: {os.strerror(int(words.split()[1]))}"
    parts = words.split("\n")
    if spawn.uid is not None and parts[0] == "user":
        parts = parts[1:]
    elif spawn.uid is not None and not parts[0]:
        return f"cannot become user {spawn.uid}, group {spawn.gid}: permission denied, or its process limit is reached"
    word = parts[0]
    if not word:
        return None
    if word == "cgroup":
        return "cannot join the cgroup of the run: it was removed, or permission denied"
    if word == "stdin":
        return f"cannot open {spawn.stdin_file} as standard input: no such file, or permission denied"
    if word == "cwd":
        return f"cannot enter working_dir {spawn.cwd}: no such directory, or permission denied"
    if word.startswith("limit "):
        name = word.removeprefix("limit ")
        return f"limits.{name} = {spawn.limits.get(name)} cannot be set: permission denied, or value out of range"
    text = word.split(" ", 2)[2:] or ["the last line of its output says why"]
    return f"cannot execute {spawn.argv[0]}: {text[0]}"
