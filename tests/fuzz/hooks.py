"""Properties of the API that its schema cannot express; Schemathesis loads this file."""

import ipaddress
import itertools
import json
import os
from typing import Any

import requests
import schemathesis
from schemathesis.core.failures import AcceptedNegativeData, Failure
from schemathesis.openapi.checks import JsonSchemaError, RejectedPositiveData

TOKEN = os.environ["FUZZ_TOKEN"]
"""Name of the token that all requests carry."""
UNTOLD = {
    "body.all": "excludes `names`, `group` and `tag`",
    "body.until": "is in the future",
    "body.run_at": "is in the future",
    "body.params": "each task declares parameters of its own",
    "path.pingEvent": "takes a body only at the end of a run",
    "header.Idempotency-Key": "is good for the same request only",
    "header.Last-Event-ID": "is the id of an earlier event of the same stream",
    "header.Ringward-Deadline": "is a time, and a pattern matches days that do not exist",
    "query.cursor": "what an earlier answer of the same search gave",
    "query.q": "may have to be a regular expression",
}
"""Refusals that a schema cannot express."""

_STREAM_S = 0.2
_clients = itertools.count(int(ipaddress.IPv4Address("10.0.0.1")))


@schemathesis.hook
def before_call(_context: schemathesis.HookContext, case: schemathesis.Case[Any], kwargs: dict[str, Any]) -> None:
    """Send each request from another client address, so that wrong passwords do not lock out the client."""
    case.headers["X-Forwarded-For"] = str(ipaddress.IPv4Address(next(_clients)))
    kwargs["hooks"] = {"response": _answered}


def _answered(response: requests.Response, **_: Any) -> None:
    """Return the part of an endless stream within a time limit or a number of events."""
    if response.headers.get("Content-Type") == "text/event-stream":
        response.raw.connection.sock.settimeout(_STREAM_S)


@schemathesis.hook
def filter_case(_context: schemathesis.HookContext, case: schemathesis.Case[Any]) -> bool:
    """Skip the revocation of our own token."""
    return case.path_parameters.get("tokenName") != TOKEN


@schemathesis.hook
def filter_failure(
    _context: schemathesis.HookContext,
    failure: Failure,
    case: schemathesis.Case[Any],
    response: schemathesis.Response,
) -> bool:
    """Ignore refusals that the document cannot express."""
    if isinstance(failure, JsonSchemaError) and response.headers["content-type"][0].startswith("text/event-stream"):
        # The document describes the data of an event as parsed JSON; Schemathesis compares the text.
        return False
    if isinstance(failure, AcceptedNegativeData) and case.body is None:
        return False  # null is an absent body
    if isinstance(failure, RejectedPositiveData) and response.status_code == 416:
        return False  # the size of the text depends on the log
    if isinstance(failure, RejectedPositiveData) and response.status_code == 422:
        locations = [error["location"] for error in json.loads(response.content)["errors"]]
        if case.path.startswith("/api/units/") and {"body", "body.note"}.issuperset(locations):
            return False  # an empty selector, which must never mean all, or a note without its subject
        return not all(map(_is_untold, locations))
    return True


def _is_untold(location: str) -> bool:
    return any(location == place or location.startswith(f"{place}.") for place in UNTOLD)
