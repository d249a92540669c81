"""Asking for a heartbeat URL."""

import http.client
import time
import urllib.error
import urllib.request

from supervisor.notifier.masking import masked
from supervisor.notifier.order import Ping, Result

_TIMEOUT_S = 10.0
_TRIES = 3
_PAUSE_S = 1.0
_MAX_ERROR = 300


def ping(order: Ping) -> Result:
    """Ask for it, up to three times; what it answers is not read."""
    result = _once(order)
    for number in range(1, _TRIES):
        if result.error is None:
            break
        time.sleep(number * _PAUSE_S)
        result = _once(order)
    return result


def _once(order: Ping) -> Result:
    request = urllib.request.Request(order.url, headers={"User-Agent": "Ringward"})  # noqa: S310 - http or https: checked with the configuration
    try:
        with urllib.request.urlopen(request, timeout=_TIMEOUT_S):  # noqa: S310 - the same
            return Result()
    except urllib.error.HTTPError as err:
        err.close()
        return Result(f"the server answered with status {err.code}")
    except (OSError, http.client.HTTPException, ValueError) as err:
        return Result(masked(str(err), order.url)[:_MAX_ERROR])
