"""Completion of names of tasks and services in a shell; without a quick answer of the daemon, there are none."""

from collections.abc import Callable

import click

from supervisor.cli.settings import Settings

Names = Callable[[click.Context, click.Parameter, str], list[str]]
"""A function that completes names, with click's signature."""

_TIMEOUT_S = 0.5
"""Time limit for the daemon, because the user has pressed a key and waits."""


def all_names(context: click.Context, _parameter: click.Parameter, incomplete: str) -> list[str]:
    """Return names of tasks and services that begin with the typed text."""
    return _names(context, incomplete, ("task", "service"))


def task_names(context: click.Context, _parameter: click.Parameter, incomplete: str) -> list[str]:
    """Return names of tasks that begin with the typed text."""
    return _names(context, incomplete, ("task",))


def service_names(context: click.Context, _parameter: click.Parameter, incomplete: str) -> list[str]:
    """Return names of services that begin with the typed text."""
    return _names(context, incomplete, ("service",))


def _names(context: click.Context, incomplete: str, kinds: tuple[str, ...]) -> list[str]:
    settings = context.find_object(Settings) or Settings()
    try:
        items = settings.api().get("/api/tasks", timeout_s=_TIMEOUT_S)["items"]
        return [item["name"] for item in items if item["kind"] in kinds and item["name"].startswith(incomplete)]
    except click.ClickException:  # a completion must not print errors
        return []
