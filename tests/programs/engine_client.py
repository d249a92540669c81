"""Stands for a client of an engine that is not there: takes exactly the arguments that it takes, and does the like.

Called by the name of that client. A job is a process of its own; its state is in $STANDIN_STATE, a file for each: the
process id, and when it has ended, a line with its exit code. Its output was recorded from the real clients. Arguments
that none of them takes end with status 64.
"""

import grp
import json
import os
import pwd
import re
import shlex
import signal
import subprocess
import sys
import time
from functools import partial
from pathlib import Path
from typing import NoReturn

STATE = Path(os.environ["STANDIN_STATE"])
ULID = "[0-9A-HJKMNP-TV-Z]{26}"
PARENTHESES = r"\((\w+)\)"
BRACES = r"\{(\w+)\}"


def refuse() -> NoReturn:
    print(f"unexpected: {sys.argv}", file=sys.stderr)
    sys.exit(64)


class Job:
    def __init__(self, name: str) -> None:
        self.name = name
        self.file = STATE / name

    @property
    def words(self) -> list[str]:
        return self.file.read_text().split() if self.file.exists() else []

    def runs(self) -> bool:
        return len(self.words) == 1

    def run(self, argv: list[str], env: dict[str, str], cwd: str | None = None) -> int:
        """Until it ends; returns its exit code as engines tell it."""
        if self.words:
            print(f"{self.name} is there already", file=sys.stderr)
            return 125
        plain = {"PATH": os.environ["PATH"], **env}
        process = subprocess.Popen(argv, env=plain, cwd=cwd, start_new_session=True)
        self.file.write_text(f"{process.pid}")
        status = process.wait()
        code = status if status >= 0 else 128 - status
        self.file.write_text(f"{process.pid}\n{code}")
        return code

    def stop(self, grace_s: float) -> bool:
        if not self.runs():
            return False
        deadline = time.monotonic() + grace_s
        os.kill(int(self.words[0]), signal.SIGTERM)
        while self.runs():
            if time.monotonic() > deadline:
                os.killpg(int(self.words[0]), signal.SIGKILL)
            time.sleep(0.01)
        return True


def parsed(arguments: list[str], *patterns: str) -> list[re.Match[str]]:
    """The first arguments, each as its pattern wants it."""
    matches = [re.fullmatch(pattern, word, re.DOTALL) for pattern, word in zip(patterns, arguments, strict=False)]
    if len(arguments) < len(patterns) or None in matches:
        refuse()
    return matches  # type: ignore[return-value]


def several(arguments: list[str], pattern: str) -> tuple[list[re.Match[str]], list[str]]:
    """Those at the beginning that are as the pattern wants them, and the others."""
    matches = []
    while arguments and (match := re.fullmatch(pattern, arguments[0], re.DOTALL)):
        matches.append(match)
        arguments = arguments[1:]
    return matches, arguments


def expanded(text: str, pattern: str, env: dict[str, str], *, unknown: str | None) -> str:
    """What an engine makes of a text in which two dollars are one, and `pattern` finds the names of variables."""

    def replaced(match: re.Match[str]) -> str:
        name = match[1]
        return "$" if name is None else env.get(name, match[0] if unknown is None else unknown)

    return re.sub(rf"\$(?:\$|{pattern})", replaced, text)


def docker(arguments: list[str]) -> int:
    if arguments[0] == "run":
        _, _, name, label = parsed(
            arguments, "run", "--rm", f"--name=ringward-({ULID})", f"--label=ringward.run=({ULID})"
        )
        names, remaining = several(arguments[4:], "--env=([^=]+)")
        places, remaining = several(remaining, "--workdir=(.+)")
        parsed(remaining, "--network=none", "alpine:3")
        if name[1] != label[1]:
            refuse()
        env = {name[1]: os.environ[name[1]] for name in names}
        return Job(name[1]).run(remaining[2:], env, places[0][1] if places else None)
    if arguments[0] == "stop":
        _, grace, name = parsed(arguments, "stop", "--time=([0-9]+)", f"ringward-({ULID})")
        if not Job(name[1]).stop(int(grace[1])):
            print(f"Error response from daemon: No such container: {arguments[2]}", file=sys.stderr)
            return 1
        print(arguments[2])
        return 0
    _, _, label = parsed(arguments, "ps", "--quiet", f"--filter=label=ringward.run=({ULID})")
    if Job(label[1]).runs():
        print("4c01db0b339c")
    return 0


def kubectl(arguments: list[str]) -> int:
    parsed(arguments, "--namespace=jobs")
    arguments = arguments[1:]
    pod = f"ringward-({ULID.lower()})"
    if arguments[0] == "run":
        name = parsed(
            arguments,
            *("run", pod, "--image=alpine:3", "--restart=Never", "--attach", "--rm", "--quiet"),
            *("--pod-running-timeout=24h", f"--labels=ringward-run={ULID}"),
        )[1]
        given, remaining = several(arguments[9:], "--env=([^=]+)=(.*)")
        parsed(remaining, "--command", "--")
        env: dict[str, str] = {}
        for assignment in given:
            env[assignment[1]] = expanded(assignment[2], PARENTHESES, env, unknown=None)
        code = Job(name[1]).run([expanded(word, PARENTHESES, env, unknown=None) for word in remaining[2:]], env)
        if code:
            print(f"pod jobs/{arguments[1]} terminated (Error)", file=sys.stderr)
        return code
    if arguments[0] == "delete":
        name, _, grace = parsed(arguments[2:], pod, "--ignore-not-found", "--grace-period=([0-9]+)")
        if Job(name[1]).stop(int(grace[1])):
            print(f'pod "{arguments[2]}" deleted')
        return 0
    output = re.escape("--output=jsonpath={.metadata.namespace}/{.metadata.name}")
    name = parsed(arguments, "get", "pod", pod, "--ignore-not-found", output)[2]
    if Job(name[1]).runs():
        print(f"jobs/{arguments[2]}", end="")
    return 0


def nomad(arguments: list[str]) -> int:
    name = re.fullmatch(f"ringward-({ULID})|a110c-({ULID})|run|-", arguments[-1])
    if name is None:
        refuse()
    head = arguments[:-1]
    if head == ["job", "run", "-detach", "-json"]:
        job = json.load(sys.stdin)["Job"]
        print("Job registration successful\nEvaluation ID: 5b5d4f25-2ca7-4a5b-9d0f-1c4a6c3c9f0e")
        sys.stdout.flush()
        assert (job["Type"], job["Datacenters"], len(job["TaskGroups"])) == ("batch", ["*"], 1)
        task = job["TaskGroups"][0]["Tasks"][0]
        assert (task["Driver"], task["Config"].pop("image")) == ("docker", "alpine:3")
        keeper = [sys.executable, "-I", __file__, "keeper", job["ID"].removeprefix("ringward-"), json.dumps(task)]
        with (STATE / f"{job['ID']}.out").open("wb") as output:
            subprocess.Popen(keeper, start_new_session=True, stdin=subprocess.DEVNULL, stdout=output, stderr=output)
        return 0
    engine_job = Job(name[1] or name[2] or "")
    if head[:3] == ["job", "allocs", "-t"] and '"pending"' in head[3]:
        print(f"a110c-{engine_job.name} " if engine_job.words else "", end="")
    elif head == ["alloc", "logs", "-f", f"a110c-{head[-1][6:]}"]:
        engine_job = Job(head[-1].removeprefix("a110c-"))
        with (STATE / f"ringward-{engine_job.name}.out").open() as output:
            goes_on = True
            while goes_on:
                goes_on = engine_job.runs()
                print(output.read(), end="", flush=True)
                time.sleep(0.01)
    elif head == ["alloc", "status", "-t", "{{.ClientStatus}}"]:
        print("running" if engine_job.runs() else "complete" if engine_job.words[1] == "0" else "failed", end="")
    elif head[:3] == ["alloc", "status", "-t"] and ".ExitCode" in head[3]:
        print(f" {engine_job.words[1]}", end="")
    elif head == ["job", "stop", "-purge", "-detach"] and not engine_job.runs():
        engine_job.file.unlink()
        (STATE / f"ringward-{engine_job.name}.out").unlink()
    elif head == ["job", "stop", "-detach"]:
        engine_job.stop(60)
    elif head == ["job", "inspect", "-t", "{{.Status}}"]:
        return inspected(engine_job, arguments[-1])
    else:
        refuse()
    return 0


def inspected(engine_job: Job, job: str) -> int:
    """Its status at Nomad; a job with output is registered."""
    if not engine_job.words and not (STATE / f"{job}.out").exists():
        print(f'No job(s) with prefix or ID "{job}" found', file=sys.stderr)
        return 1
    print("running" if engine_job.runs() else "dead" if engine_job.words else "pending", end="")
    return 0


def keeper(arguments: list[str]) -> int:
    """Of a job of Nomad, after the client that submitted it."""
    task = json.loads(arguments[1])
    config = task["Config"]
    braces = [re.sub(r"([$%])(\1)?\{(\w+)\}", partial(interpolated, task["Env"]), word) for word in config["args"]]
    return Job(arguments[0]).run([config["command"], *braces], task["Env"])


def interpolated(env: dict[str, str], match: re.Match[str]) -> str:
    """Interpolate the configuration of a driver: a doubled dollar stands for itself."""
    return f"{match[1]}{{{match[3]}}}" if match[2] else env[match[3]]


def ray(arguments: list[str]) -> int:
    job = f"ringward-({ULID})"
    if arguments[1] == "submit":
        _, _, name, given, *_ = parsed(
            arguments, "job", "submit", f"--submission-id={job}", "--runtime-env-json=(.*)", "--", "python3", "-c"
        )
        env = json.loads(given[1])["env_vars"]
        print(f"Job 'ringward-{name[1]}' submitted successfully", flush=True)
        # As versions before 2.10 join it, for a shell.
        entrypoint = subprocess.list2cmdline(arguments[5:])
        code = Job(name[1]).run(["/bin/sh", "-c", f"exec {entrypoint}"], env)
        print(f"Job 'ringward-{name[1]}' {'failed' if code else 'succeeded'}")
        return int(code != 0)
    name = parsed(arguments, "job", "stop|status", job)[2]
    engine_job = Job(name[1])
    if not engine_job.words:
        print(f"RuntimeError: Request failed with status code 404: Job {arguments[2]} does not exist", file=sys.stderr)
        return 1
    if arguments[1] == "stop":
        engine_job.stop(60)
    else:
        print(f"Status for job '{arguments[2]}': RUNNING" if engine_job.runs() else f"Job '{arguments[2]}' succeeded")
    return 0


def systemd_run(arguments: list[str]) -> int:
    unit = parsed(arguments, "--wait", "--pipe", "--quiet", "--collect", f"--unit=ringward-({ULID})")[4]
    names, remaining = several(arguments[5:], "--setenv=([^=]+)")
    places, remaining = several(remaining, "--working-directory=(.+)")
    user, group = pwd.getpwuid(os.geteuid()).pw_name, grp.getgrgid(os.getegid()).gr_name
    parsed(remaining, f"--uid={user}", f"--gid={group}", "--property=TimeoutStopSec=60s 1ms", "--property=Nice=5", "--")
    env = {name[1]: os.environ[name[1]] for name in names}
    argv = [remaining[5], *(expanded(word, BRACES, env, unknown="") for word in remaining[6:])]
    return Job(unit[1]).run(argv, env, places[0][1] if places else None)


def systemctl(arguments: list[str]) -> int:
    unit = f"ringward-({ULID})\\.service"
    if arguments[0] == "stop":
        Job(parsed(arguments, "stop", unit)[1][1]).stop(60)
        return 0
    states = "--state=active,activating,deactivating,reloading"
    name = parsed(arguments, "list-units", "--plain", "--no-legend", "--full", states, unit)[5]
    if Job(name[1]).runs():
        print(f"{arguments[5]} loaded active running {shlex.quote('[systemd-run] /bin/sh')}")
    return 0


CLIENTS = {
    "docker": docker,
    "kubectl": kubectl,
    "nomad": nomad,
    "ray": ray,
    "systemd-run": systemd_run,
    "systemctl": systemctl,
    "keeper": keeper,
}
given = sys.argv[1:]
sys.exit(CLIENTS[given[0]](given[1:]))
