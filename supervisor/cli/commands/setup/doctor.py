"""``ringward doctor``: checks whether this host meets the daemon's requirements."""

import os
from collections.abc import Iterator
from dataclasses import asdict
from typing import TYPE_CHECKING

import click
from msgspec.structs import replace

from supervisor.cli import exit_codes
from supervisor.cli.settings import CONFIG, DATA, Settings, pass_settings
from supervisor.ipc.plural import counted

if TYPE_CHECKING:
    from supervisor.config.model import Config, Task
    from supervisor.startup.api_user import ApiUser
    from supervisor.tools.doctor.finding import Finding

_MOST_WARNINGS = 20
_MORE = "For other messages, see Troubleshooting in docs/operations.rst"


@click.command("doctor", epilog="Example: ringward doctor")
@CONFIG
@DATA
@click.option("--json", "as_json", is_flag=True, help="Print the findings as JSON.")
@pass_settings
def command(settings: Settings, as_json: bool) -> int:
    """Check this host against the daemon's requirements.

    Each problem has a remedy. Run this as the daemon's user. It changes nothing and needs no daemon.
    """
    from supervisor.cli.tables import show_json, show_table

    findings = list(_findings(settings))
    if as_json:
        show_json([asdict(finding) for finding in findings])
    else:
        show_table(
            ("CHECK", "RESULT", "DETAIL", "REMEDY"),
            [[finding.what, finding.verdict, finding.text, finding.remedy or "-"] for finding in findings],
            prose={"DETAIL", "REMEDY"},
        )
        click.echo(_MORE, err=True)
    return exit_codes.REFUSED if any(finding.verdict == "fail" for finding in findings) else exit_codes.OK


def _findings(settings: Settings) -> Iterator["Finding"]:
    from supervisor.config.files.lookup import data_dir
    from supervisor.host.shared_memory import file_system_types
    from supervisor.startup.runtime_directory import candidates
    from supervisor.tools.doctor import data, host
    from supervisor.tools.doctor.clock_check import clock

    finding, config, workers = _configuration(settings)
    yield finding
    if config is not None:
        yield from _advice(config)
    if workers is not None:
        yield _workers(workers)
    directory = data_dir(settings.data, config.daemon.data_dir if config else None, os.environ)
    yield data.directory(directory, None if workers is None or workers.account is None else workers.account[1])
    yield data.disk(directory, config.storage.min_free_bytes if config else None)
    if config is not None:
        yield data.database(config, directory)
        for name in config.exports:
            yield data.export(directory, name)
    types = file_system_types()
    yield host.shared_memory(candidates(os.environ, os.geteuid()), types)
    yield host.cgroups(types)
    yield host.descriptors()
    if config is not None and (watched := [_folders(task) for task in config.tasks.values() if task.on_change]):
        yield host.inotify(len(watched), sum(map(len, watched)))
    yield clock()
    yield _installation()


def _folders(task: "Task") -> set[str]:
    """Return the directories of ``on_change``, each of which needs an inotify watch."""
    return {os.path.dirname(glob) for glob in task.on_change}


def _configuration(settings: Settings) -> "tuple[Finding, Config | None, ApiUser | None]":
    """Return the finding about the configuration, and its values and the user of API workers if it is valid.

    Reading the configuration also checks who can write to its files.
    """
    from supervisor.config.files.lookup import data_dir, require_config
    from supervisor.config.load import load
    from supervisor.config.problems import ConfigError
    from supervisor.startup import host_check
    from supervisor.tools.doctor.finding import Finding

    try:
        config = load(require_config(settings.config, os.environ))
        resolved = host_check.check_host(config, os.environ)
        directory = data_dir(settings.data, config.daemon.data_dir, os.environ)
        host_check.check_paths(config, directory)
        workers = host_check.reaching(resolved.api_user, config, directory)
    except ConfigError as err:
        first, count = err.problems[0], len(err.problems)
        more = f" (and {count - 1} more)" if count > 1 else ""
        problem = str(first).partition("\n")[0]  # without the remedy on the next line
        return Finding("configuration", "fail", f"{problem}{more}", "run: ringward validate"), None, None
    text = f"{config.path} is valid: {counted(len(config.tasks), 'task')}, {counted(len(config.services), 'service')}"
    return Finding("configuration", "ok", text), config, workers


def _advice(config: "Config") -> Iterator["Finding"]:
    """Yield a finding for each warning about the configuration, or a single one if there are no warnings."""
    from supervisor.startup import advice
    from supervisor.tools.doctor.finding import Finding

    check = "runs"
    warnings = [*config.warnings, *advice.advised(config, os.environ)]
    if not warnings:
        yield Finding(check, "ok", "their users, directories and programs exist")
    for warning in warnings[:_MOST_WARNINGS]:
        yield Finding(check, "warn", str(replace(warning, remedy=None)), warning.remedy)
    if len(warnings) > _MOST_WARNINGS:
        more = len(warnings) - _MOST_WARNINGS
        yield Finding(check, "warn", f"{counted(more, 'more warning')}", "ringward validate lists all of them")


def _workers(user: "ApiUser") -> "Finding":
    from supervisor.tools.doctor.finding import Finding

    check = "API workers"
    if user.warning is not None:
        return Finding(check, "warn", user.warning, user.remedy)
    if user.account is None:
        return Finding(check, "ok", f"run as the daemon's user, {os.geteuid()}")
    return Finding(check, "ok", f"run as user {user.account[0]} with read access only")


def _installation() -> "Finding":
    from supervisor.tools.doctor.finding import Finding
    from supervisor.version import VERSION

    return Finding("installation", "ok", f"Ringward {VERSION}")
