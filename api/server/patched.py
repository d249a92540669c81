"""gevent's patches of the standard library.

Modules that keep references to sockets, locks or waiting functions must be imported after this one.
"""

import logging
import os
from importlib.util import find_spec

from gevent import hub, monkey

log = logging.getLogger("gunicorn.error")


class WorkerHub(hub.Hub):  # type: ignore[misc]  # gevent has no types here
    """A gevent hub that ends a worker without memory for a greenlet switch, so that a new server replaces it.

    A new worker of the same server would have the same limit and, at best, as little memory.
    """

    no_memory_status: int | None = None
    """Exit status of a worker without memory; None until it serves, because gunicorn handles earlier failures."""

    def handle_error(self, context: object, kind: type[BaseException] | None, value: object, traceback: object) -> None:
        """Handle an error that no greenlet has caught."""
        if self.no_memory_status is not None and kind is not None and issubclass(kind, MemoryError):
            try:
                log.error("out of memory; a new API server starts")
            finally:
                os._exit(self.no_memory_status)
        super().handle_error(context, kind, value, traceback)


# Before gevent's patches, which create the hub.
hub.set_default_hub_class(WorkerHub)
# Not os, signal and subprocess: arbiter and workers handle signals and reap processes as gunicorn expects.
monkey.patch_all(os=False, signal=False, subprocess=False)

if find_spec("psycopg_binary") or find_spec("psycopg_c"):
    # Before psycopg, which would wait in Python because of the patches, with a hub in each thread of a query.
    os.environ.setdefault("PSYCOPG_WAIT_FUNC", "wait_c")
