"""The report of a reload for its requester, also for a preview. Pure."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from supervisor.config.diff import ChangedKey, ConfigDiff, UnitChange
from supervisor.config.keys import Effect
from supervisor.config.model import Service
from supervisor.config.problems import Problem
from supervisor.scheduler.runs import run_transitions
from supervisor.scheduler.runs.live_units import Unit

_WORDS = {
    Effect.AT_ONCE: "applies at once",
    Effect.NEXT_START: "applies at the next start of the daemon",
    Effect.SCHEDULE: "the new schedule counts from now, without catch-up",
    Effect.API: "the API server restarts, streams reconnect",
    Effect.SCHEDULER: "the scheduler restarts, runs continue",
    Effect.DAEMON: "has no effect now",
}
_MOST_NAMES = 20
"""Maximum number of names in a log line."""
_API = "the password or the certificate: the API server restarts, streams reconnect"

Report = dict[str, Any]
"""``{added: [name], changed: [{name, reasons: [text]}], removed: [name], warnings: [text]}``."""


def report(
    difference: ConfigDiff, units: Mapping[str, Unit], warnings: Sequence[Problem], *, replaces_api: bool
) -> Report:
    """Return the report of a reload that has not been carried out yet.

    Args:
        difference: the difference between the configurations.
        units: the units before the reload.
        warnings: the warnings about the new configuration.
        replaces_api: whether the API server must restart.
    """
    changed = [
        {"name": f"[{name}]", "reasons": list(_grouped(keys, _WORDS))} for name, keys in difference.sections.items()
    ]
    if replaces_api and not difference.section_has(Effect.API):
        changed.append({"name": "[http]", "reasons": [_API]})
    named = {
        difference_of_unit.new.name: _reasons(difference_of_unit, units[difference_of_unit.new.name])
        for difference_of_unit in difference.changed
    }
    named |= {
        new.name: [f"the {old.kind} became a {new.kind}{_fate(units[old.name], ': {}')}"]
        for old, new in difference.turned
    }
    return {
        "added": [unit.name for unit in difference.added],
        "changed": changed + [{"name": name, "reasons": reasons} for name, reasons in sorted(named.items())],
        "removed": [unit.name for unit in difference.removed],
        "warnings": [
            *(
                f"{unit.name}{fate}"
                for unit in difference.removed
                if (fate := _fate(units[unit.name], " is removed: {}"))
            ),
            *map(str, warnings),
        ],
    }


def summary(planned: Report) -> str:
    """Return a report in one line, for the daemon's log."""
    parts = [
        f"{kind} {_listed(names)}"
        for kind, names in (
            ("added", planned["added"]),
            ("changed", [unit["name"] for unit in planned["changed"]]),
            ("removed", planned["removed"]),
        )
        if names
    ]
    return "; ".join(parts) or "nothing has changed"


def _listed(names: Sequence[str]) -> str:
    more = len(names) - _MOST_NAMES
    return ", ".join(names) if more <= 0 else f"{', '.join(names[:_MOST_NAMES])} and {more} more"


def _reasons(change: UnitChange, unit: Unit) -> list[str]:
    words = dict(_WORDS)
    if isinstance(change.new, Service) and isinstance(change.old, Service):
        words[Effect.NEXT_RUN] = "applies at the next start of an instance"
        words[Effect.RESTART] = _restarted(change.old.instances, change.new.instances, unit)
        more = change.new.instances - change.old.instances
        words[Effect.INSTANCES] = f"{more} more {_is(more)} started" if more > 0 else f"{-more} {_is(-more)} stopped"
    else:
        words[Effect.NEXT_RUN] = "applies to the next run" + _going_on(len(unit.active))
    return [*_grouped(change.keys, words), *_gaps(change, unit)]


def _gaps(change: UnitChange, unit: Unit) -> Iterator[str]:
    """Yield the addresses that a service has bound itself until now, perhaps: the daemon binds them after its end."""
    if unit.active and isinstance(change.new, Service) and isinstance(change.old, Service):
        before = {held.address for held in change.old.sockets}
        for held in change.new.sockets:
            if held.address not in before:
                yield f"sockets: {held.address} refuses connections once, until the daemon has bound it"


def _going_on(running: int) -> str:
    if not running:
        return ""
    return ", 1 active run is unaffected" if running == 1 else f", {running} active runs are unaffected"


def _restarted(before: int, after: int, unit: Unit) -> str:
    restarted = min(before, after)
    if unit.stopped:
        return "applies when the service is started"
    return f"{_are(restarted)} restarted" + (", one after the other" if restarted > 1 else "")


def _grouped(keys: Sequence[ChangedKey], words: Mapping[Effect, str]) -> Iterator[str]:
    by_effect: dict[Effect, list[str]] = {}
    for changed in keys:
        by_effect.setdefault(changed.effect, []).append(changed.key)
    for effect, names in by_effect.items():
        yield f"{', '.join(names)}: {words[effect]}"


def _fate(unit: Unit, template: str) -> str:
    """Return the effect of a removal on the runs of a unit, as `template` shows it; empty if there is none."""
    if unit.service is not None:
        alive = len(unit.active)
        return template.format(f"{_are(alive)} stopped") if alive else ""
    running = sum(run.state in run_transitions.STARTED for run in unit.active.values())
    waiting = len(unit.active) - running + len(unit.queue) + len(unit.waiting)
    parts = []
    if running:
        parts.append("1 run continues to its end" if running == 1 else f"{running} runs continue to their end")
    if waiting:
        parts.append("1 waiting run is stopped" if waiting == 1 else f"{waiting} waiting runs are stopped")
    return template.format(", ".join(parts)) if parts else ""


def _are(number: int) -> str:
    return f"{number} instance{'' if number == 1 else 's'} {_is(number)}"


def _is(number: int) -> str:
    return "is" if number == 1 else "are"
