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
    """Exit status for a worker without memory. None until the worker serves: gunicorn handles earlier failures."""

    def handle_error(self, context: object, kind: type[BaseException] | None, value: object, traceback: object) -> None:
        """Handle an uncaught error; exit if it is a MemoryError."""
        if self.no_memory_status is not None and kind is not None and issubclass(kind, MemoryError):
            try:
                log.error("out of memory; a new API server starts")
            finally:
                os._exit(self.no_memory_status)
        super().handle_error(context, kind, value, traceback)


# This must precede gevent's patches, which create the hub.
hub.set_default_hub_class(WorkerHub)
# os, signal and subprocess stay unpatched: arbiter and workers handle signals and reap processes as gunicorn expects.
monkey.patch_all(os=False, signal=False, subprocess=False)

if find_spec("psycopg_binary") or find_spec("psycopg_c"):
    # This must precede the import of psycopg. Because of the patches, psycopg would otherwise wait in Python code, with
    # a hub in each thread that runs a query.
    os.environ.setdefault("PSYCOPG_WAIT_FUNC", "wait_c")
