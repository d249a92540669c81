"""Converts values in systemd units: time spans, signals, exit statuses and start limits; signals of supervisord."""

import os
import re
import signal
from collections.abc import Callable, Mapping
from typing import Any

from supervisor.tools.importers.import_result import seconds

_SPAN = re.compile(r"(\d+(?:\.\d+)?)\s*([a-zA-Z]*)")
_UNITS = {"": 1, "s": 1, "sec": 1, "second": 1, "seconds": 1, "ms": 0.001, "msec": 0.001, "m": 60, "min": 60}
_UNITS |= {"minute": 60, "minutes": 60, "h": 3600, "hr": 3600, "hour": 3600, "hours": 3600, "d": 86400, "day": 86400}
_UNITS |= {"days": 86400, "w": 604_800, "week": 604_800, "weeks": 604_800, "us": 0.000_001, "usec": 0.000_001}
FOR_EVER = "520w"
"""A duration that stands for ``infinity``, close to the longest that Ringward accepts."""
_STATUS_NAMES = {"SUCCESS": 0, "FAILURE": 1, "INVALIDARGUMENT": 2, "NOTIMPLEMENTED": 3, "NOPERMISSION": 4}
_STATUS_NAMES |= {"NOTINSTALLED": 5, "NOTCONFIGURED": 6, "NOTRUNNING": 7}
_STATUS_NAMES |= {name.removeprefix("EX_"): getattr(os, name) for name in dir(os) if name.startswith("EX_")}
_SIGNAL_BASE = 128
_REALTIME = re.compile(r"SIGRT(?:MIN\+(\d+)|MAX-(\d+))")
_INTERVAL_S, _BURST = 10.0, 5
"""The defaults of StartLimitIntervalSec= and StartLimitBurst=."""
_RESTART_S = 0.1
"""The default of RestartSec=."""


def span(text: str) -> float:
    """Convert a time span such as ``5min 20s`` to seconds.

    Raises:
        ValueError: the text is not a time span, or is ``infinity``.
    """
    parts = _SPAN.findall(text)
    if not parts or _SPAN.sub("", text).strip() or any(unit not in _UNITS for _, unit in parts):
        raise ValueError(f"not a time span: {text}")
    return float(sum(float(number) * _UNITS[unit] for number, unit in parts))


def endless_span(text: str) -> str:
    """Convert a time limit to a duration; 0 and ``infinity`` mean no limit (systemd.service(5))."""
    if text == "infinity":
        return FOR_EVER
    duration = span(text)
    return seconds(duration) if duration else FOR_EVER


def signal_name(text: str) -> str:
    """Return the full name of a signal, which can also be given by its number or without SIG.

    Raises:
        ValueError: there is no such signal.
    """
    number = _signal_number(text)
    if number > signal.SIGRTMIN:
        return f"SIGRTMIN+{number - signal.SIGRTMIN}"
    return signal.Signals(number).name


def _signal_number(text: str) -> int:
    name = f"SIG{text.strip().upper().removeprefix('SIG')}"
    if realtime := _REALTIME.fullmatch(name):
        number = signal.SIGRTMIN + int(realtime[1]) if realtime[1] else signal.SIGRTMAX - int(realtime[2])
    else:
        number = int(text) if text.strip().isdigit() else signal.Signals.__members__.get(name, 0)
    if number not in signal.valid_signals():
        raise ValueError(text)
    return number


def statuses(text: str) -> list[int]:
    """Return 0 and the exit codes that ``SuccessExitStatus`` lists as numbers, names of statuses or signals.

    Raises:
        ValueError: a word is none of these.
    """
    codes = [0]
    for word in text.split():
        if word.isdigit():
            number = int(word)
        elif word in _STATUS_NAMES:
            number = _STATUS_NAMES[word]
        else:
            number = _SIGNAL_BASE + _signal_number(word)
        if number not in codes:
            codes.append(number)
    return codes


def restarts(setting: Callable[[str], str | None]) -> Mapping[str, Any]:
    """Return the keys for how often and how fast a service is restarted.

    A unit fails permanently after it was started ``StartLimitBurst`` times within ``StartLimitIntervalSec``. If
    ``RestartSec`` is so long that this never happens, even for a service that exits at once, restarts are unlimited.

    Args:
        setting: Returns the value of a key from its section; None: the unit does not set it.

    Raises:
        ValueError: a value is invalid.
    """
    delay = span(setting("RestartSec") or f"{_RESTART_S}")
    limit = setting("StartLimitIntervalSec") or setting("StartLimitInterval") or f"{_INTERVAL_S}"
    interval = float("inf") if limit == "infinity" else span(limit)
    burst = int(setting("StartLimitBurst") or _BURST)
    keys: dict[str, Any] = {"restart_delay": seconds(delay), "restart_backoff": "constant"}
    if int(setting("RestartSteps") or 0) and (longest := setting("RestartMaxDelaySec")):
        keys |= {"restart_backoff": "exponential", "restart_max_delay": seconds(span(longest))}
    if burst == 0 or interval <= delay * burst:
        return keys | {"restart_attempts": "unlimited"}
    quick = FOR_EVER if interval == float("inf") else seconds(interval / burst)
    return keys | {"restart_attempts": burst - 1, "healthy_after": quick}
