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
    exec 127       the command was not found, or its interpreter is missing
    exec 126       the command is not executable
    end of file    the command is running

During ``exec``, the shell's saved copy of the pipe is close-on-exec, so executing the command closes it. If ``exec``
fails, the shell restores the copy, and the trap (in bash, the next line) reports the error. This was tested with dash,
busybox and bash.

setpriv(1) of util-linux changes the user. Where it is missing (Alpine), or if the run has variables that a shell would
lose, our own Python takes all steps after the limits (:mod:`supervisor.host.prepared_command`), in about 10 ms.
"""

import os
from collections.abc import Mapping

from supervisor.host import prepared_command
from supervisor.ipc.messages import Spawn

SHELL = "/bin/sh"
CGROUP_FD = 3
"""The descriptor on which the child finds the file that adds it to its cgroup."""
STDIN_FD = 4
"""The descriptor on which a child with a status pipe finds its command's standard input, if that stays open."""

_MAX_ARGUMENT_BYTES = 128 * 1024 - 1
"""MAX_ARG_STRLEN of execve(2) without the final NUL."""
_PREFIX_BYTES = 200

_LEAVE_FD = f"exec {CGROUP_FD}>&-; "
_JOIN = f"echo 0 >&{CGROUP_FD}; "
_JOIN_OR_FAIL = f"{{ echo 0 >&{CGROUP_FD}; }} 2>/dev/null || _fail cgroup\n"
_BEGIN = """\
trap '_ringward=$?; case $_ringward in 126|127) echo "exec $_ringward" >&0;; esac' EXIT
[ -z "$BASH_VERSION" ] || shopt -s execfail 2>/dev/null
_fail() { echo "$1" >&0; exit 125; }
"""
_END = """\
if [ -n "$1" ]; then cd -- "$1" 2>/dev/null || _fail cwd; fi
_stdin=$2
shift 2
unset OLDPWD
_opened=
{ _opened=1; exec "$@"; } @STDIN@
_code=$?
[ -n "$_opened" ] || _fail stdin
exit $_code
"""
_FROM_FILE = '<"$_stdin"'
_FROM_PIPE = f"<&{STDIN_FD} {STDIN_FD}<&-"
_PYTHON = """\
exec "$@"
exit $?
"""
_OTHER_USER = """\
trap - EXIT
exec "$@"
"""
_BLOCK_BYTES = 512
_KB = 1024
# The command that sets each limit, soft and hard, and its unit. The cgroup limits memory and cpu. POSIX counts file
# sizes in blocks of 512 bytes.
_LIMITS: Mapping[str, tuple[str, int]] = {
    "address_space": ("ulimit -v {0} 2>/dev/null", _KB),
    "cpu_time": ("ulimit -t {0} 2>/dev/null", 1),
    "nofile": ("ulimit -n {0} 2>/dev/null", 1),
    "nproc": ("{{ ulimit -p {0} || ulimit -u {0}; }} 2>/dev/null", 1),  # dash and busybox, or bash
    "core": ("ulimit -c {0} 2>/dev/null", _BLOCK_BYTES),
    "file_size": ("ulimit -f {0} 2>/dev/null", _BLOCK_BYTES),
    "stack": ("ulimit -s {0} 2>/dev/null", _KB),
    "memlock": ("ulimit -l {0} 2>/dev/null", _KB),
    "oom_score_adj": ("{{ echo {0} >/proc/self/oom_score_adj; }} 2>/dev/null", 1),
    "nice": ("renice {0} -p $$ >/dev/null 2>&1", 1),
}


def wrapped(spawn: Spawn, nofile: int | None, *, cgroup: bool, carries: bool) -> tuple[list[str], bool]:
    """Return the command line to execute for a run, and whether its standard input is a status pipe.

    Args:
        spawn: The request.
        nofile: The original soft limit on descriptors, if we have raised it.
        cgroup: The process must join a cgroup.
        carries: The run has variables that a shell would lose.
    """
    bare = spawn.cwd is None and spawn.uid is None and not _limited(spawn) and not spawn.stdin_file
    text = spawn.argv[-1]
    short = len(text.encode("utf-8", "surrogateescape")) < _MAX_ARGUMENT_BYTES - _PREFIX_BYTES
    if bare and short and spawn.argv[:-1] == [SHELL, "-e", "-c"]:
        join = _JOIN + _LEAVE_FD if cgroup else ""
        return [SHELL, "-e", "-c", join + _builtins(spawn, nofile) + text], False
    if bare and spawn.argv[0] == SHELL and spawn.umask is None and nofile is None and not cgroup:
        return spawn.argv, False
    join = _JOIN_OR_FAIL + _LEAVE_FD if cgroup else ""
    preamble = _BEGIN + join + _builtins(spawn, nofile) + "\n" + _limits(spawn)
    end = _END.replace("@STDIN@", _FROM_PIPE if spawn.stdin_open else _FROM_FILE)
    command = ["ringward", spawn.cwd or "", spawn.stdin_file or "/dev/null", *spawn.argv]
    if carries or (spawn.uid is not None and _SETPRIV is None):
        return [SHELL, "-c", preamble + _PYTHON, "ringward", *_by_python(spawn)], True
    if spawn.uid is None:
        return [SHELL, "-c", preamble + end, *command], True
    inner = [SHELL, "-c", "echo user >&0\n" + _BEGIN + end, *command]
    return [SHELL, "-c", preamble + _OTHER_USER, "ringward", *_to_user(spawn), *inner], True


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
    return [_SETPRIV or "setpriv", f"--reuid={spawn.uid}", f"--regid={spawn.gid}", f"--groups={groups}"]


def _by_python(spawn: Spawn) -> list[str]:
    """Return the command with which our own Python takes all steps after the limits."""
    user = None if spawn.uid is None or spawn.gid is None else (spawn.uid, spawn.gid, spawn.groups)
    stdin = STDIN_FD if spawn.stdin_open else spawn.stdin_file or "/dev/null"
    return prepared_command.command_line(spawn.argv, status_pipe=True, user=user, cwd=spawn.cwd, stdin=stdin)


_SETPRIV = prepared_command.setpriv()


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
    if word == "exec 126":
        return f"cannot execute {spawn.argv[0]}: permission denied, or not a program"
    return f"cannot execute {spawn.argv[0]}: no such file, or no such interpreter (first line)"
