"""Why nothing can be stored until a person acts, as the scheduler says it also while it does not work."""

import contextlib
import json

from supervisor.ipc.messages import Boot


def database_problem(boot: Boot) -> dict[str, str] | None:
    """Return its `summary`, for everybody, and its `detail`, for those who may see the daemon; None: there is none."""
    with contextlib.suppress(OSError, ValueError), open(boot.database_problem, encoding="utf-8") as file:
        found = json.load(file)
        if found["daemon"] == boot.started_at:
            return {"summary": str(found["summary"]), "detail": str(found["detail"])}
    return None
