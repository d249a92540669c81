"""What everybody with access may see of a definition."""

import json
import signal
from typing import Any

from supervisor.config.model import Service, Task

_MASK = "***"


def definition_text(unit: Task | Service) -> str:
    """The definition as JSON, names as in the configuration file's tables, values of ``env`` and ``secrets`` masked."""
    fields: dict[str, Any] = {name: getattr(unit, name) for name in unit.__dataclass_fields__ if name != "name"}
    for key in ("env", "secrets"):
        fields[key] = dict.fromkeys(fields[key], _MASK)
    fields["stop_signal"] = signal.Signals(unit.stop_signal).name
    fields["graceful_stop_ms"] = fields.pop("grace_ms")
    fields["stderr"] = "merge" if fields.pop("merge_stderr") else "separate"
    fields["redraw"] = "auto" if fields["redraw"] else "off"
    fields["log_max_size_bytes"] = fields.pop("log_max_bytes")
    if isinstance(unit, Task):
        fields["cron"] = fields.pop("crons")
    return json.dumps({name: value for name, value in fields.items() if value is not None})
