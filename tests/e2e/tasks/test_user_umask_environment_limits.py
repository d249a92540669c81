"""The conditions in which a run's command starts: user, umask, environment, limits."""

import os
import pwd
import signal
import tempfile
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.support.daemon import Daemon
from tests.support.waiting import until

pytestmark = pytest.mark.lent

root_only = pytest.mark.skipif(os.geteuid() != 0, reason="only root can change the user of a process")


class PrivateVariables(Daemon):
    """A daemon with private variables in its own environment."""

    def environment(self) -> dict[str, str]:
        ours = {
            "RINGWARD_SOMETHING": "x",
            "NOTIFY_SOCKET": "/nonexistent",
            "WATCHDOG_USEC": "99000000",
            "WATCHDOG_PID": "1",
            "LISTEN_PID": "1",
            "LISTEN_FDS": "0",
            "LISTEN_FDNAMES": "a",
        }
        return {**super().environment(), **ours, "OF_THE_DAEMON": "inherited"}


Said = Callable[..., list[str]]


@pytest.fixture
def output_of(daemon: Daemon) -> Said:
    """Run a command with some keys; return its output after it has succeeded."""

    def run(command: str, keys: str = "") -> list[str]:
        daemon.write(f"[tasks.t]\nrun = '''{command}'''\n{keys}\n")
        daemon.start()
        ended = daemon.ended(daemon.trigger("t"))
        assert ended["endReason"] == "succeeded", daemon.texts(ended["id"], "system") + daemon.texts(
            ended["id"], "stderr"
        )
        return daemon.texts(ended["id"])

    return run


def refused(daemon: Daemon, keys: str) -> str:
    """Return the log of a run that could not be started with some keys."""
    daemon.write(f'[tasks.t]\nrun = "true"\n{keys}\n')
    daemon.start()
    ended = daemon.ended(daemon.trigger("t"))
    assert (ended["endReason"], ended["exitCode"]) == ("start_failed", -1)
    return "\n".join(daemon.texts(ended["id"], "system"))


@root_only
def test_user_sets_groups_and_login_variables(output_of: Said) -> None:
    """A run has the user, group and supplementary groups of ``user``, and the variables of a login."""
    entry = pwd.getpwnam("daemon")
    command = 'id -u; id -g; id -G; echo "$HOME $USER $LOGNAME $SHELL"; echo error >/dev/stderr; echo 2 >/dev/stdout'
    groups = " ".join(map(str, os.getgrouplist("daemon", entry.pw_gid)))
    assert output_of(command, 'user = "daemon"') == [
        str(entry.pw_uid),
        str(entry.pw_gid),
        groups,
        f"{entry.pw_dir} daemon daemon {entry.pw_shell}",
        "2",
    ]


@root_only
def test_group_replaces_the_primary_group(output_of: Said) -> None:
    """``group`` becomes the primary group; ``env`` overrides the variables of the login."""
    keys = 'user = "games:daemon"\nworking_dir = "/"\numask = "027"\nenv = { HOME = "/elsewhere" }'
    assert output_of('id -gn; echo "$HOME"; pwd; umask', keys) == ["daemon", "/elsewhere", "/", "0027"]


@root_only
def test_another_user_can_open_its_terminal(output_of: Said) -> None:
    """A run of another user can open its terminal by name."""
    assert output_of("id -un; echo there >/dev/tty", 'user = "daemon"\ntty = true') == ["daemon", "there"]


CLIENT = """\
#!/bin/sh
while [ "$1" != -- ]; do case $1 in --uid=*) user=${1#*=};; esac; shift; done
shift
exec setpriv --reuid="$user" --regid=nogroup --clear-groups "$@"
"""
OF_ANOTHER_USER = """
[launchers.by-name]
start = ["{client}", "--uid={{user}}", "--setenv={{env_name}}", "--", "{{command}}"]
stop = ["sh", "-c", "exit 0"]
[defaults]
user = "nobody"
working_dir = "/"
env_file = "{variables}"
[tasks.script]
run = "echo $ARRIVED"
[tasks.terminal]
run = ["sh", "-c", "echo $ARRIVED"]
tty = true
limits = {{ nice = 1 }}
[tasks.odd]
run = ["sh", "-c", "echo $ARRIVED"]
env = {{ "app.name" = "shop" }}
[tasks.launched]
launcher = "by-name"
run = "echo $ARRIVED; exit 3"
[services.probed]
run = "echo $ARRIVED; exec sleep 1000"
ready = {{ exec = ["sh", "-c", "test $ARRIVED = there"], every = "50ms" }}
"""


@root_only
def test_root_sees_no_variables_of_another_user(daemon: Daemon) -> None:
    """Whoever may write the ``env_file`` of another user's unit chooses nothing that root's programs do.

    The dynamic loader writes a file for each program that sees its variables, with the user of that program.
    """
    nobody = pwd.getpwnam("nobody").pw_uid
    with tempfile.TemporaryDirectory() as directory:  # not tmp_path, which only root may enter
        os.chmod(directory, 0o711)
        traces, client, variables = (Path(directory, name) for name in ("traces", "client", "variables"))
        traces.mkdir()
        os.chown(traces, nobody, -1)
        client.write_text(CLIENT)
        client.chmod(0o755)
        variables.write_text(f"LD_DEBUG=statistics\nLD_DEBUG_OUTPUT={traces}/of\nARRIVED=there\n")
        os.chown(variables, nobody, -1)
        daemon.write(OF_ANOTHER_USER.format(client=client, variables=variables))
        daemon.start()
        for name in ("script", "terminal", "odd", "launched"):
            assert daemon.texts(daemon.ended(daemon.trigger(name))["id"]) == ["there"], name
        until(lambda: daemon.task("probed")["instances"][0]["ready"], "the probe to succeed")
        assert {path.stat().st_uid for path in traces.iterdir()} == {nobody}
        daemon.write("")  # so that nothing writes to the directory any more
        assert daemon.cli("reload").returncode == 0


def test_unknown_user_fails_the_start(daemon: Daemon) -> None:
    """A run with an unknown user is not started, and its log names the cause."""
    assert "no such user: no-such-user" in refused(daemon, 'user = "no-such-user"')


@root_only
def test_unknown_group_fails_the_start(daemon: Daemon) -> None:
    """A run with an unknown group is not started, and its log names the cause."""
    assert "no such group: no-such-group" in refused(daemon, 'user = "daemon:no-such-group"')


@root_only
def test_working_dir_is_entered_as_the_user(daemon: Daemon, tmp_path: Path) -> None:
    """The working directory is entered with the permissions of the user."""
    (tmp_path / "private").mkdir(mode=0o700)
    keys = f'user = "daemon"\nworking_dir = "{tmp_path}/private"'
    assert "cannot enter working_dir" in refused(daemon, keys)


@root_only
def test_command_errors_with_another_user(daemon: Daemon, tmp_path: Path) -> None:
    """A command that another user lacks, or may not execute, is reported as such."""
    text = refused(daemon, f'user = "daemon"\nshell = "{tmp_path}/no-shell"')
    assert f"cannot execute {tmp_path}/no-shell: " in text
    assert "ermission denied" in text


def test_run_as_script_or_list(daemon: Daemon) -> None:
    """A script goes to the configured shell, which exits at the first error; a list is executed directly."""
    daemon.write(
        '[tasks.text]\nrun = "echo ${BASH_VERSION:+bash}; false; echo no"\nshell = "/bin/bash"\n'
        '[tasks.list]\nrun = ["echo", "$HOME; a  b", "*"]\n'
    )
    daemon.start()
    text, words = (daemon.ended(daemon.trigger(name)) for name in ("text", "list"))
    assert (text["exitCode"], daemon.texts(text["id"])) == (1, ["bash"])
    assert daemon.texts(words["id"]) == ["$HOME; a  b *"]


def test_umask_is_set(output_of: Said) -> None:
    """A run has the configured umask."""
    assert output_of("umask", 'umask = "0137"') == ["0137"]


def test_default_umask(output_of: Said) -> None:
    """Without ``umask`` a run has the umask with which the daemon was started, not the daemon's own strict one."""
    before = os.umask(0o022)
    os.umask(before)
    assert output_of("umask") == [f"{before:04o}"]


def test_daemon_secrets_are_not_inherited(tmp_path: Path) -> None:
    """The daemon's password and the variables of its service manager reach no run; other variables do."""
    daemon = PrivateVariables(tmp_path)
    try:
        daemon.write('[tasks.t]\nrun = "env"\n')
        daemon.start()
        run = daemon.ended(daemon.trigger("t"))
        names = {line.partition("=")[0] for line in daemon.texts(run["id"])}
        assert daemon.environment()["RINGWARD_PASSWORD"] not in "\n".join(daemon.texts(run["id"]))
    finally:
        daemon.clean()
    assert "OF_THE_DAEMON" in names
    own = {"RUN_ID", "TASK", "INSTANCE", "ATTEMPT", "TRIGGER", "DAEMON"}
    assert {name for name in names if name.startswith("RINGWARD_")} == {f"RINGWARD_{name}" for name in own}
    assert not {name for name in names if name.startswith(("NOTIFY_", "WATCHDOG_", "LISTEN_"))}


def test_clean_env(output_of: Said) -> None:
    """``clean_env`` keeps only the login's variables, the configured ones, and the run's own."""
    names = {line.partition("=")[0] for line in output_of("env", 'env_base = "clean"\nenv = { A = "1" }')}
    login = {"PATH", "HOME", "USER", "LOGNAME", "SHELL"}
    by_the_shell = {"PWD", "OLDPWD", "SHLVL", "_"}
    assert {name for name in names - by_the_shell if not name.startswith("RINGWARD_")} == login | {"A"}


@pytest.mark.own
def test_env_files(daemon: Daemon, tmp_path: Path) -> None:
    """Variables come from ``env_file``, ``env`` overrides them, and secrets stay masked."""
    (tmp_path / "vars").write_text("# ours\nA=from the file # really\nexport B='2'\n\nC=\"x\\ty\"\n")
    (tmp_path / "secret").write_text("TOKEN=very-secret-token\n")
    keys = 'env_file = "vars"\nsecrets_file = ["secret"]\nenv = { B = "said" }'
    daemon.write(f"[tasks.t]\nrun = '''echo \"$A|$B|$C|$TOKEN\"'''\n{keys}\n")
    daemon.start()
    run = daemon.ended(daemon.trigger("t"))
    assert daemon.texts(run["id"]) == ["from the file|said|x\ty|***"]
    assert "very-secret" not in str(daemon.task("t"))


def test_limits_apply_to_the_whole_run(output_of: Said) -> None:
    """Each limit applies to the command and to the processes that it starts."""
    limits = 'nofile = 99, core = "0", cpu_time = "90s", file_size = "1mb", stack = "4mb", nproc = 5000'
    command = """\
for one in "Max open files" "Max core" "Max cpu" "Max file size" "Max stack" "Max processes"; do
    grep "^$one" /proc/self/limits | sed "s/^$one[a-z ]*//" | { read soft hard _; echo "$soft $hard"; }
done"""
    mb = 1 << 20
    assert output_of(command, f"limits = {{ {limits} }}") == [
        "99 99",
        "0 0",
        "90 91",
        f"{mb} {mb}",
        f"{4 * mb} {4 * mb}",
        "5000 5000",
    ]


def test_nice_and_oom_score_adj(output_of: Said) -> None:
    """A run has the configured niceness and OOM score adjustment."""
    assert output_of("nice; cat /proc/self/oom_score_adj", "limits = { nice = 19, oom_score_adj = 400 }") == [
        "19",
        "400",
    ]


def test_memory_limit_kills_the_run(daemon: Daemon) -> None:
    """A run beyond limits.memory is killed; without a memory controller it runs, and its log says so."""
    text = "dd if=/dev/zero of=/dev/null bs=96M count=1 2>/dev/null && echo done"
    daemon.write(f'[tasks.t]\nrun = "{text}"\nlimits = {{ memory = "64mb" }}\n')
    daemon.start()
    run = daemon.ended(daemon.trigger("t"))
    told = "\n".join(daemon.texts(run["id"], "system"))
    if "limits.memory is not applied" in told:
        assert (run["endReason"], daemon.texts(run["id"], "stdout")) == ("succeeded", ["done"])
    else:
        assert (run["endReason"], daemon.texts(run["id"], "stdout")) == ("failed", [])
        assert "limits.memory" in told


def test_limits_of_the_cgroup(daemon: Daemon) -> None:
    """Each limit of a run's cgroup is in its file there, or the run's log says why it does not apply."""
    files = {
        "pids": ("pids.max", "40", "40"),
        "memory_high": ("memory.high", '"64mb"', str(64 << 20)),
        "swap": ("memory.swap.max", '"0b"', "0"),
        "cpu_weight": ("cpu.weight", "50", "50"),
        "io_weight": ("io.weight", "70", "default 70"),
    }
    show = "cd /sys/fs/cgroup$(sed -n s/^0:://p /proc/self/cgroup) && grep -s . " + " ".join(
        file for file, _, _ in files.values()
    )
    limits = ", ".join(f"{name} = {value}" for name, (_, value, _) in files.items())
    daemon.write(f"[tasks.t]\nrun = '{show}'\nlimits = {{ {limits} }}\n")
    daemon.start()
    run = daemon.ended(daemon.trigger("t"))
    told = "\n".join(daemon.texts(run["id"], "system"))
    shown = daemon.texts(run["id"], "stdout")
    for name, (file, _, content) in files.items():
        assert f"limits.{name} is not applied: " in told or f"{file}:{content}" in shown


def test_address_space(daemon: Daemon) -> None:
    """limits.address_space bounds each process, with or without cgroups."""
    daemon.write('[tasks.t]\nrun = "exec tail /dev/zero"\nlimits = { address_space = "64mb" }\n')
    daemon.start()
    run = daemon.ended(daemon.trigger("t"))
    assert run["endReason"] == "failed"
    assert "memory exhausted" in "\n".join(daemon.texts(run["id"], "stderr"))


def test_unsettable_limit_fails_the_start(daemon: Daemon) -> None:
    """A run is not started if one of its limits cannot be set."""
    text = refused(daemon, "limits = { nofile = 1073741824 }")
    assert "limits.nofile = 1073741824 cannot be set" in text


@root_only
def test_limits_are_set_before_the_user(output_of: Said) -> None:
    """Limits are set before the user, so that they can be raised."""
    keys = 'user = "daemon"\nlimits = { nice = -5, nofile = 77 }'
    assert output_of("nice; ulimit -n; id -un", keys) == ["-5", "77", "daemon"]


@root_only
def test_runs_of_another_user_can_be_stopped(daemon: Daemon) -> None:
    """A run of another user is stopped like any other."""
    daemon.write('[tasks.t]\nuser = "daemon"\nrun = "echo $$; exec sleep 1000"\ngraceful_stop = "60s"\n')
    daemon.start()
    run_id = daemon.trigger("t")
    until(lambda: daemon.texts(run_id), "its pid")
    assert daemon.request("POST", f"/api/runs/{run_id}/stop").status == 204
    assert daemon.ended(run_id)["exitCode"] == 128 + signal.SIGTERM
