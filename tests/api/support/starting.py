"""How the server is started: as it is, or with other constants."""

PATIENCE: dict[str, dict[str, float]] = {
    "api.read_threads": {"_FILE_S": 60.0, "_READ_S": 60.0},
    "api.worker_context": {"_ASK_S": 60.0},
    "api.streams.stream_content": {"_COMING_S": 60.0},
    "api.auth.passwords": {"_ASK_S": 60.0, "_P": 1},  # hashing takes most of the time of a login
    "api.resources.runs.search": {"_CALL_S": 60.0},
}
"""The patience of tests about other things, since the machine of a test may stall."""

_CHANGED = """
import importlib

import api.serve

fd = api.serve.prepare()
arbiter = importlib.import_module("api.server.arbiter")
for place, constants in {constants}.items():
    vars(importlib.import_module(place)).update(constants)
arbiter.run(fd)
"""


def program(constants: dict[str, dict[str, float]]) -> tuple[str, ...]:
    """Arguments for Python: the server, with these constants of these modules."""
    return ("-c", _CHANGED.replace("{constants}", repr(constants))) if constants else ("-m", "ringward", "api")
