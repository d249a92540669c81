"""Spawn requests to the root, announced early where possible.

A run starts only after it is stored. An announced request lets the root prepare the process meanwhile, and is not sent
again: the message that starts the run carries its digest.
"""

import os
from collections.abc import Mapping
from hashlib import blake2b
from typing import Any

from logring.log_paths import log_path
from supervisor.config.diff import process_hash
from supervisor.config.model import Service, Task
from supervisor.config.value_records import Probe
from supervisor.host import unix_accounts
from supervisor.ipc.log_line import stamp
from supervisor.ipc.messages import BY_DIGEST, DaemonSettings, Message, Spawn, spawn_message
from supervisor.scheduler.database.commits import Change, Committer
from supervisor.scheduler.flows.step_values import ALONE, MissingValue, is_secret, resolved
from supervisor.scheduler.launchers import launcher_commands
from supervisor.scheduler.loop.root_connection import RootConnection
from supervisor.scheduler.loop.user_lookup import DAEMON_USER, UserIdentity
from supervisor.scheduler.runs.live_units import LiveRun
from supervisor.scheduler.runs.private_data import PrivateData
from supervisor.scheduler.runs.run_access import TOKEN, RunAccess
from supervisor.scheduler.runs.run_observer import StopRequest
from supervisor.scheduler.runs.run_parameters import CommandParameters, InvalidParameters, command_parameters
from supervisor.scheduler.runs.run_rows import run_row_of
from supervisor.scheduler.runs.run_transitions import State


class SpawnRequests:
    """Sends spawn requests to the root."""

    def __init__(self, settings: DaemonSettings, root: RootConnection, committer: Committer) -> None:
        self._settings = settings
        self._root = root
        self._committer = committer
        self._access = RunAccess.of(settings)
        self._private = PrivateData(settings)
        self._announced: tuple[LiveRun, Message] | None = None
        """The run that was announced last, and the message that starts it."""

    def announce(self, run: LiveRun) -> None:
        """Ask the root to prepare a run that starts as soon as the next change is stored.

        Nothing is sent while other changes are being stored, or if the run's user must be looked up first. The
        root prepares one process, so one run is announced at a time.
        """
        definition = run.definition
        if self._announced is not None and self._announced[0].state is State.DECIDED:
            return
        if not self._committer.idle or definition.user is not None or definition.clean_env or definition.launcher:
            return
        asked = isinstance(definition, Task) and definition.only_if is not None  # perhaps it does not start
        if asked or run.has_outputs:  # their file, which the request names, is made later
            return
        run.identity = DAEMON_USER
        spawn = self._spawn(run)
        digest = _digest_of(spawn)
        by_digest = {"op": "spawn", "run": run.id, "digest": digest}
        self._announced = run, by_digest if self._root.protocol >= BY_DIGEST else {"op": "spawn", "spawn": spawn}
        self._root.send({"op": "prepare", "spawn": spawn, "digest": digest})

    def start(self, run: LiveRun) -> None:
        """Send the spawn request of a run whose user is known."""
        if self._announced is not None and self._announced[0] is run and run.identity == DAEMON_USER:
            self._root.send(self._announced[1])
        else:
            self.start_whole(run)

    def start_whole(self, run: LiveRun) -> None:
        """Send the whole spawn request of a run whose user is known."""
        self._root.send({"op": "spawn", "spawn": self._spawn(run)})

    def stop(self, run: LiveRun, request: StopRequest, _change: Change) -> None:
        """Ask the root to stop a run; the request does not wait until it is stored."""
        self._root.send({"op": "stop", "run": run.id, **request._asdict()})

    def _spawn(self, run: LiveRun) -> Message:
        log = log_path(self._settings.data_dir, run.unit.name, run.id)
        files: dict[str, str] = {}
        if run.files:
            files["RINGWARD_FILES"] = self._private.path_for_command(run.id)
        if run.place is not None:
            files["RINGWARD_INPUTS"] = self._private.inputs_path(run.id)
        if run.output_file is not None:
            files["RINGWARD_OUTPUT"] = run.output_file
        spawn = spawn_of(run, self._settings.daemon_id, log, run_row_of(run), self._access, files)
        return spawn_message(spawn, self._root.protocol)


def _digest_of(request: Message) -> str:
    """Return the digest by which the root recognises a request."""
    return blake2b(repr(request).encode("utf-8", "surrogateescape"), digest_size=16).hexdigest()


def spawn_of(
    run: LiveRun,
    daemon_id: str,
    log: str,
    run_row: dict[str, Any] | None = None,
    access: RunAccess | None = None,
    files: Mapping[str, str] | None = None,
) -> Spawn:
    """Return the spawn request of `run`, whose user is known.

    Args:
        run: the run; invalid parameters become its ``refusal``.
        daemon_id: ULID of the data directory.
        log: path of the log file.
        run_row: row and policy of the run (:func:`.run_rows.run_row_of`).
        access: access to the daemon, used if the definition sets ``may``.
        files: paths of the run's files, by variable.
    """
    definition = run.definition
    identity = run.identity or UserIdentity()
    passed, refusal = _parameters_of(run)
    if run.place is not None and run.place.refusal is not None:
        refusal = run.place.refusal
    words, referred, hidden, missing = _references_of(run)
    refusal = refusal or missing
    account = identity.account
    steps = definition.stop_ladder
    own = _own_variables(run, {**referred, **passed.env}, daemon_id, files or {})
    path = {"PATH": unix_accounts.CLEAN_PATH} if definition.clean_env else {}
    notifying = _notify_variables(definition, daemon_id, run.id)
    sockets = [held.name for held in definition.sockets] if isinstance(definition, Service) else []
    listening = {"LISTEN_FDS": str(len(sockets)), "LISTEN_FDNAMES": ":".join(sockets)} if sockets else {}
    env = {**path, **identity.variables, **own, **notifying, **listening}
    secrets = [*definition.secrets, *passed.secrets, *hidden]
    if definition.may and definition.launcher is None and access is not None:
        env |= access.variables(run.id, env)
        secrets += [TOKEN] if TOKEN in env else []
    spawn = Spawn(
        run=run.id,
        task=definition.name,
        argv=_command_line(definition, words, passed.arguments),
        env=env,
        secrets=secrets,
        recipe=process_hash(definition) if isinstance(definition, Service) else "",
        origin=run_row or {},
        cwd=definition.working_dir,
        log=log,
        log_max_bytes=definition.log_max_bytes,
        log_on_full=definition.log_on_full,
        timeout_ms=definition.timeout_ms,
        refusal=identity.refusal if refusal is None else refusal,
        clean_env=definition.clean_env,
        uid=account.uid if account is not None and not account.is_own else None,
        gid=account.gid if account is not None else None,
        groups=list(account.groups) if account is not None else [],
        umask=definition.umask,
        limits=definition.limits,
        stop_signal=steps[0][0],
        grace_ms=steps[0][1],
        stop_target=definition.stop_target,
        stop_then=[list(step) for step in steps[1:]],
        leave=definition.leave_leftovers,
        notify=notifying.get("NOTIFY_SOCKET"),
        tty=definition.tty,
        stdin_open=definition.stdin == "open",
        stdin_file=None if definition.stdin in ("null", "open") else definition.stdin,
        merge_stderr=definition.merge_stderr,
        redraw=definition.redraw,
        sockets=sockets,
    )
    if definition.launcher is None:
        return spawn
    facts = launcher_commands.facts(definition, run.id, run.instance, run.attempt)
    return launcher_commands.launched(definition.launcher, spawn, facts, definition, own)


def command_as_run(
    run: LiveRun, command: str | tuple[str, ...], settings: DaemonSettings, access: RunAccess
) -> dict[str, Any]:
    """Return a command for the watcher, with the environment, user and directory of a run whose user is known."""
    log = log_path(settings.data_dir, run.unit.name, run.id)
    spawn = spawn_of(run, settings.daemon_id, log, access=access)
    hidden = {*settings.private_variables}
    base = {} if spawn.clean_env else {name: text for name, text in os.environ.items() if name not in hidden}
    return {
        "argv": [run.definition.shell, "-e", "-c", command] if isinstance(command, str) else list(command),
        "env": {**base, **spawn.env},
        "chosen": list(spawn.env),
        "secrets": spawn.secrets,
        "cwd": spawn.cwd,
        "uid": spawn.uid,
        "gid": spawn.gid,
        "groups": spawn.groups,
        "umask": spawn.umask,
    }


def _parameters_of(run: LiveRun) -> tuple[CommandParameters, str | None]:
    """Return the run's parameters for the command, and why the run must not start, or None."""
    none = CommandParameters([], {}, [])
    if not isinstance(run.definition, Task):
        return none, None
    try:
        return command_parameters(run.definition, run.params), None
    except InvalidParameters as err:
        return none, f"invalid parameters: {err}"


def _references_of(run: LiveRun) -> tuple[dict[int, str], dict[str, str], list[str], str | None]:
    """Return what the references of a step stand for: words of its command by index, and variables by name.

    The other results are the names of variables with secrets, and why the run must not start, or None.
    """
    definition, place = run.definition, run.place or ALONE
    words: dict[int, str] = {}
    variables: dict[str, str] = {}
    hidden: list[str] = []
    for where, template in definition.references if isinstance(definition, Task) else ():
        try:
            value = resolved(template, place)
        except MissingValue as err:
            return {}, {}, [], str(err)
        if "\0" in value:
            return {}, {}, [], f"the value of {where} contains a NUL character"
        if isinstance(where, str):
            variables[where] = value
            hidden += [where] if is_secret(template, place) else []
            continue
        words[where] = value
        if value.startswith("-") and len(template) == 1 and definition.run[where - 1] != "--":
            return {}, {}, [], f"word {where + 1} of its command is a reference whose value begins with a hyphen"
    return words, variables, hidden, None


def _command_line(definition: Task | Service, words: dict[int, str], arguments: list[str]) -> list[str]:
    """Return the command, with `words` in place of some of its own, and its arguments.

    A text becomes a command of the shell.
    """
    if not isinstance(definition.run, str):
        return [*(words.get(index, word) for index, word in enumerate(definition.run)), *arguments]
    # sh -c takes the first argument as $0; keep the value it has without arguments.
    name = [definition.shell] if arguments else []
    return [definition.shell, "-e", "-c", definition.run, *name, *arguments]


def _own_variables(run: LiveRun, passed: dict[str, str], daemon_id: str, files: Mapping[str, str]) -> dict[str, str]:
    """Return the variables from the definition and from parameters (`passed`), and some that describe the run."""
    definition = run.definition
    variables = {
        **definition.env,
        **definition.secrets,
        **passed,
        "RINGWARD_RUN_ID": run.id,
        "RINGWARD_TASK": definition.name,
        "RINGWARD_INSTANCE": str(run.instance),
        "RINGWARD_ATTEMPT": str(run.attempt),
        "RINGWARD_TRIGGER": run.trigger,
        "RINGWARD_DAEMON": daemon_id,
    }
    variables |= files
    scheduled_at = run.scheduled_at
    if run.place is not None:
        scheduled_at = run.place.values.scheduled_at
        variables["RINGWARD_FLOW_ID"] = run.place.flow_run_id
        variables["RINGWARD_FLOW_ATTEMPT"] = str(run.place.values.attempt)
        variables["RINGWARD_STEP"] = run.place.step
    if scheduled_at is not None:
        variables["RINGWARD_SCHEDULED_AT"] = stamp(scheduled_at)
    return variables


def _notify_variables(definition: Task | Service, daemon_id: str, run_id: str) -> dict[str, str]:
    """Return the variables for sd_notify(3), if a probe of the service uses it."""
    if not isinstance(definition, Service) or "notify" not in (_kind(definition.ready), _kind(definition.live)):
        return {}
    variables = {"NOTIFY_SOCKET": f"@ringward/{daemon_id}/{run_id}"}
    if definition.live is not None and definition.live.kind == "notify":
        variables["WATCHDOG_USEC"] = str(1000 * definition.live.every_ms * definition.live.failures)
    return variables


def _kind(probe: Probe | None) -> str | None:
    return None if probe is None else probe.kind
