"""Asking for a heartbeat URL."""

import http.client
import time
import urllib.error
import urllib.request
from http.client import HTTPMessage
from typing import IO

from supervisor.helpers.notifier.masking import masked
from supervisor.helpers.notifier.redirects import why_not
from supervisor.ipc.delivery_request import Ping, Result

_TIMEOUT_S = 10.0
_TRIES = 3
_PAUSE_S = 1.0
_MAX_ERROR = 300


class _Redirects(urllib.request.HTTPRedirectHandler):
    """Follows those to the same host and scheme."""

    def redirect_request(
        self, req: urllib.request.Request, fp: IO[bytes], code: int, msg: str, headers: HTTPMessage, newurl: str
    ) -> urllib.request.Request | None:
        """See :meth:`urllib.request.HTTPRedirectHandler.redirect_request`."""
        why = why_not(req.full_url, newurl)
        if why is not None:
            fp.close()
            raise urllib.error.URLError(f"status {code} {why}")
        return super().redirect_request(req, fp, code, msg, headers, newurl)


_opener = urllib.request.build_opener(_Redirects)


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
        with _opener.open(request, timeout=_TIMEOUT_S):
            return Result()
    except urllib.error.HTTPError as err:
        err.close()
        return Result(f"the server answered with status {err.code}")
    except urllib.error.URLError as err:
        return Result(masked(str(err.reason), order.url)[:_MAX_ERROR])
    except (OSError, http.client.HTTPException, ValueError) as err:
        return Result(masked(str(err), order.url)[:_MAX_ERROR])
