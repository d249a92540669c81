"""Presets for the clients of other engines.

``{client}`` and ``{options}`` are replaced by the words of these keys, ``{host}`` and ``{image}`` by their values. All
other placeholders are replaced for each run (:mod:`.launchers`). The shell texts here are fixed: values of a run reach
them as arguments or variables.
"""

from collections.abc import Mapping
from typing import Final, Literal

from msgspec import Struct, field

FEED_VARIABLE = "RINGWARD_INPUT"
REMOTE_MARK = "RINGWARD_LAUNCHED"
"""Variable with the run id, in the environment of all processes of a job that was started over ssh."""
COMMAND_VARIABLE = "RINGWARD_COMMAND"


class Preset(Struct, frozen=True):
    """The launcher of an engine, with words as in the configuration."""

    start: tuple[str, ...]
    stop: tuple[str, ...]
    probe: tuple[str, ...]
    client: tuple[str, ...] = ()
    """Default of the key `client`; empty if there is no such key."""
    takes: frozenset[str] = frozenset({"options"})
    """The keys among options, host and image that it has."""
    needs: frozenset[str] = frozenset()
    """The required keys among them."""
    feed: Literal["nothing", "script", "nomad_job"] = "nothing"
    carries_secrets: bool = True
    expands: bool = False
    """Whether the engine expands variables in arguments and values; a doubled dollar stands for itself."""
    own_failures: Mapping[str, str] = field(default_factory=dict)
    """Exit statuses of the client itself, and their meanings."""


# No argument, and no file with a name: a pipe, or a file that bash has already removed.
_FEED = f'input=${FEED_VARIABLE}; unset {FEED_VARIABLE}; exec "$@" <<RINGWARD_END\n$input\nRINGWARD_END'
_FED = ("/bin/sh", "-c", _FEED, "ringward")
_SSH = ("{client}", "-T", "-oBatchMode=yes", "-oServerAliveInterval=15")
# Login shells that are not POSIX read these lines too: one line, one pair of single quotes, no exclamation mark. All of
# the script has to be there before any of it runs: it is one { } command.
_SSH_RUN = "exec /bin/sh -c 'input=$(cat) && exec </dev/null && eval \"$input\"'"
_SSH_FIND = (
    f'found() {{ for f in $(grep -lsF "{REMOTE_MARK}=$1" /proc/[0-9]*/environ); do '
    'f=${f%/environ}; echo "${f#/proc/}"; done; }; '
)
_SSH_STOP = (
    f"exec /bin/sh -c '{_SSH_FIND}end=; "
    'while pids=$(found "$1") && [ -n "$pids" ]; do read up rest </proc/uptime; up=${up%.*}; '
    'if [ -z "$end" ]; then end=$((up + $3)); kill -"$2" $pids; '
    'elif [ "$up" -ge "$end" ]; then kill -9 $pids; fi 2>/dev/null; '
    "sleep 0.2; done' ringward {run_id} {stop_signal} {grace_s}"
)
_SSH_PROBE = (
    f"exec /bin/sh -c '{_SSH_FIND}"
    'pid=$(found "$1" | sort -n | head -n 1); [ -z "$pid" ] || echo "$(uname -n):$pid"\' ringward {run_id}'
)
_NOMAD_RUN = r"""
job=$1; shift
begun='{{range .}}{{if ne .ClientStatus "pending"}}{{.ID}} {{end}}{{end}}'
ended='{{range .TaskStates}}{{range .Events}}{{if eq .Type "Terminated"}} {{.ExitCode}}{{end}}{{end}}{{end}}'
"$@" job run -detach -json - >&2 || exit
exec </dev/null
over=
while :; do
    found=$("$@" job allocs -t "$begun" "$job")
    [ -z "$found" ] || break
    [ -z "$over" ] || { echo "$job ended before it started: it was stopped" >&2; exit 1; }
    case $("$@" job inspect -t '{{.Status}}' "$job" 2>&1) in dead|*"No job"*) over=1;; *) sleep 1;; esac
done
allocation=${found%% *}
"$@" alloc logs -f "$allocation" run &
while :; do
    status=$("$@" alloc status -t '{{.ClientStatus}}' "$allocation" 2>&1)
    case $status in complete|failed|lost|*"No allocation"*) break;; esac
    sleep 1
done
sleep 1
kill $! 2>/dev/null
wait $!
code=$("$@" alloc status -t "$ended" "$allocation")
"$@" job stop -purge -detach "$job" >&2
code=${code##* }
exit "${code:-1}"
"""
_NOMAD_PROBE = r"""
job=$1; shift
status=$("$@" job inspect -t '{{.Status}}' "$job" 2>&1) || case $status in
    *"No job"*) exit 0;;
    *) echo "$status" >&2; exit 1;;
esac
case $status in pending|running) echo "$job";; esac
"""
_RAY_PROBE = r"""
job=$1; shift
status=$("$@" job status "$job" 2>&1) || case $status in
    *"does not exist"*) exit 0;;
    *) echo "$status" >&2; exit 1;;
esac
case $status in *PENDING*|*RUNNING*) echo "$job";; esac
"""
# Ray joins the words of the command for a shell, not all of its versions alike; nothing in this one needs quoting.
_RAY_COMMAND = f"import os, json; a = json.loads(os.environ['{COMMAND_VARIABLE}']); os.execvp(a[0], a)"

_JOB = "ringward-{run_id}"
_POD = "ringward-{run_id_lower}"

PRESETS: Final[Mapping[str, Preset]] = {
    "slurm": Preset(
        start=("srun", "--job-name={run_id}", "--unbuffered", "{options}", "{command}"),
        stop=("scancel", "--name={run_id}"),
        probe=("squeue", "--name={run_id}", "--noheader", "--format=%A"),
    ),
    "kubernetes": Preset(
        client=("kubectl",),
        start=(
            *("{client}", "run", _POD, "--image={image}", "--restart=Never", "--attach", "--rm", "--quiet"),
            *("--pod-running-timeout=24h", "--labels=ringward-run={run_id}", "--env={env_name}={env_value}"),
            *("{options}", "--command", "--", "{command}"),
        ),
        stop=("{client}", "delete", "pod", _POD, "--ignore-not-found", "--grace-period={grace_s}"),
        probe=(
            *("{client}", "get", "pod", _POD, "--ignore-not-found"),
            "--output=jsonpath={.metadata.namespace}/{.metadata.name}",
        ),
        takes=frozenset({"options", "image"}),
        needs=frozenset({"image"}),
        carries_secrets=False,
        expands=True,
    ),
    "nomad": Preset(
        client=("nomad",),
        start=(*_FED, "/bin/sh", "-c", _NOMAD_RUN, "ringward", _JOB, "{client}"),
        stop=("{client}", "job", "stop", "-detach", _JOB),
        probe=("/bin/sh", "-c", _NOMAD_PROBE, "ringward", _JOB, "{client}"),
        takes=frozenset({"image"}),
        feed="nomad_job",
        carries_secrets=False,
    ),
    "docker": Preset(
        client=("docker",),
        start=(
            *("{client}", "run", "--rm", f"--name={_JOB}", "--label=ringward.run={run_id}", "--env={env_name}"),
            *("--workdir={working_dir}", "{options}", "{image}", "{command}"),
        ),
        stop=("{client}", "stop", "--time={grace_s}", _JOB),
        probe=("{client}", "ps", "--quiet", "--filter=label=ringward.run={run_id}"),
        takes=frozenset({"options", "image"}),
        needs=frozenset({"image"}),
        own_failures={"125": "125 is docker's own exit code: there was no container, or it could not start"},
    ),
    "ray": Preset(
        client=("ray",),
        start=(
            *("{client}", "job", "submit", f"--submission-id={_JOB}"),
            *('--runtime-env-json={"env_vars": {env_json} }', "{options}", "--", "python3", "-c", _RAY_COMMAND),
        ),
        stop=("{client}", "job", "stop", _JOB),
        probe=("/bin/sh", "-c", _RAY_PROBE, "ringward", _JOB, "{client}"),
        carries_secrets=False,
    ),
    "ssh": Preset(
        client=("ssh",),
        start=(*_FED, *_SSH, "{options}", "{host}", _SSH_RUN),
        stop=(*_SSH, "{options}", "{host}", _SSH_STOP),
        probe=(*_SSH, "{options}", "{host}", _SSH_PROBE),
        takes=frozenset({"options", "host"}),
        needs=frozenset({"host"}),
        feed="script",
        own_failures={"255": "255 is ssh's own exit code: the connection failed"},
    ),
    "systemd-run": Preset(
        start=(
            *("systemd-run", "--wait", "--pipe", "--quiet", "--collect", f"--unit={_JOB}", "--setenv={env_name}"),
            *("--working-directory={working_dir}", "--uid={user}", "--gid={group}"),
            # In two parts, since 0 alone would mean no limit.
            *("--property=TimeoutStopSec={grace_s}s 1ms", "{options}", "--", "{command}"),
        ),
        stop=("systemctl", "stop", f"{_JOB}.service"),
        probe=(
            *("systemctl", "list-units", "--plain", "--no-legend", "--full"),
            *("--state=active,activating,deactivating,reloading", f"{_JOB}.service"),
        ),
        expands=True,
    ),
}
