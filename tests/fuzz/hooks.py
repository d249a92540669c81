"""What Schemathesis cannot know of the API; it loads this file itself."""

import ipaddress
import itertools
import json
import os
import re
from typing import Any

import schemathesis
from schemathesis.core.failures import Failure
from schemathesis.openapi.checks import JsonSchemaError, RejectedPositiveData

TOKEN = os.environ["FUZZ_TOKEN"]
"""Name of the token that all requests carry."""
UNTOLD = {
    "body.filter.status": "a list of words, of which the schema knows only that it is text",
    "body.params": "each task declares parameters of its own",
    "header.Idempotency-Key": "is good for the same request only",
    "query.at": "another way to say from",
    "query.cursor": "what an earlier answer of the same search gave",
    "query.from": "has to be before to",
    "query.q": "may have to be a regular expression",
    "query.status": "a list of words, of which the schema knows only that it is text",
}
"""What is refused beyond the schema, which has no words for it."""
CLAMPED = ("exit_code_min", "exit_code_max")
"""Conditions that mean the nearest int64 when they are beyond it; their format is int64."""
_LINK = re.compile(r"https?://[\w.:/-]*")

_clients = itertools.count(int(ipaddress.IPv4Address("10.0.0.1")))


@schemathesis.hook
def before_call(_context: schemathesis.HookContext, case: schemathesis.Case[Any], _kwargs: dict[str, Any]) -> None:
    """Each request comes from another client, so that wrong passwords are answered, not shut out."""
    case.headers["X-Forwarded-For"] = str(ipaddress.IPv4Address(next(_clients)))


@schemathesis.hook
def filter_case(_context: schemathesis.HookContext, case: schemathesis.Case[Any]) -> bool:
    """Our own token is not revoked, and no body counts as invalid that is taken on purpose."""
    return case.path_parameters.get("tokenName") != TOKEN and not _is_lenient(case.body)


@schemathesis.hook
def filter_failure(
    _context: schemathesis.HookContext,
    failure: Failure,
    _case: schemathesis.Case[Any],
    response: schemathesis.Response,
) -> bool:
    """What the document cannot tell is no failure."""
    if isinstance(failure, JsonSchemaError) and response.headers["content-type"][0].startswith("text/event-stream"):
        # OpenAPI 3.1 describes a whole body, here the list of all events, and Schemathesis wants each one's schema.
        return False
    if isinstance(failure, RejectedPositiveData) and response.status_code == 422:
        return not all(_is_untold(error["location"]) for error in json.loads(response.content)["errors"])
    return True


def _is_untold(location: str) -> bool:
    return any(location == place or location.startswith(f"{place}.") for place in UNTOLD)


def _is_lenient(body: Any) -> bool:
    """Whether it has something that the document gives a format, which we do not insist on."""
    if not isinstance(body, dict):
        return False
    link, conditions = body.get("$schema"), body.get("filter")
    codes = [conditions.get(name) for name in CLAMPED] if isinstance(conditions, dict) else []
    if any(type(code) is int and not -(2**63) <= code < 2**63 for code in codes):
        return True
    return isinstance(link, str) and not _LINK.fullmatch(link)
