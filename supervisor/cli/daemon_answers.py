"""The daemon's answers, with checks of their fields.

If an answer lacks a field that every daemon sends, or has another type there, it does not come from a daemon.
"""

import json
import re
from collections.abc import Callable
from typing import Any

from supervisor.cli import exit_codes
from supervisor.cli.failure import Failure

_RUN_ID = re.compile(r"[0-9A-HJKMNP-TV-Z]{26}")


class UnexpectedAnswer(Failure):
    """The answer does not come from a Ringward daemon."""

    def __init__(self, problem: str) -> None:
        message = f"not a Ringward daemon, or one of another version: {problem}"
        super().__init__(message, exit_codes.UNREACHABLE)


def is_run_id(value: object) -> bool:
    """Return whether `value` may be the id of a run."""
    return isinstance(value, str) and _RUN_ID.fullmatch(value) is not None


def _is_text(value: object) -> bool:
    """Return whether `value` is a string that can be printed; lone surrogates cannot."""
    if not isinstance(value, str):
        return False
    try:
        value.encode()
    except UnicodeEncodeError:
        return False
    return True


def _is_number(value: object) -> bool:
    return isinstance(value, int)


def _is_word(value: object) -> bool:
    return _is_number(value) or _is_text(value)


def _is_record(value: object) -> bool:
    return isinstance(value, AnswerObject)


def _is_list_of(kind: Callable[[object], bool]) -> Callable[[object], bool]:
    return lambda value: isinstance(value, list) and all(map(kind, value))


def _is_after(value: object) -> bool:
    """Return whether it is the number of a line, or a list of steps."""
    return _is_number(value) or _is_list_of(_is_text)(value)


_KINDS: tuple[tuple[Callable[[object], bool], str], ...] = (
    (is_run_id, "id run_id runId"),
    (_is_record, "active definition details lastRun pause rolling withheld"),
    (_is_list_of(is_run_id), "runIds"),
    (
        _is_list_of(_is_record),
        "changed dependsOn errors instances items lastLines lines runs silentTasks steps triggered",
    ),
    (_is_list_of(_is_record), "days heldBy units waitingFor"),
    (_is_list_of(_is_text), "added configAdvice configWarnings inotifyProblems killedLeftovers logProblems reasons"),
    (_is_list_of(_is_text), "removed rows tags warnings"),
    (_is_after, "after"),
    (_is_number, "affected count done exitCode failed failureLine failures gracefulStopMs index instanceIndex"),
    (_is_number, "missed missedCount n pending r retryAttempt running silentTaskCount timeoutMs total totalLines ts"),
    (_is_number, "layer retryAttempt usualMs"),
    (_is_text, "cause endCause failedRunId failedStep flow flowRunId item step"),
    (_is_text, "doneBy failingSince lateSince"),
    (_is_word, "status"),
    (
        _is_text,
        "at calendar window country createdAt date endedAt expiresAt lastUsedAt local nextRunAt removalsHeldUntil",
    ),
    (_is_text, "retryAt runsAgainAt scheduledFor"),
    (
        _is_text,
        "startedAt startsAt createdBy detail endCause endReason error from group kind location message name note",
    ),
    (_is_text, "operation reason requestedBy result role signal state stream target taskName task_name tasks text"),
    (_is_text, "title triggeredBy until who startedBy configPath hostname password token version"),
)
_KIND_OF = {name: kind for kind, names in _KINDS for name in names.split()}
"""The type of each field with one of these names, in every answer; other fields only have to be present."""


class AnswerObject(dict[str, object]):
    """An object in an answer.

    Raises:
        UnexpectedAnswer: an accessed field is absent, or has the wrong type.
    """

    def __getitem__(self, key: str) -> Any:
        """Return a field that every daemon sends."""
        if key not in self:
            raise UnexpectedAnswer(f'the response has no "{key}"')
        return self._checked(key, super().__getitem__(key))

    def get(self, key: str, default: Any = None) -> Any:
        """Return an optional field; `default` if it is absent or null."""
        value = super().get(key)
        return default if value is None else self._checked(key, value)

    def _checked(self, key: str, value: object) -> object:
        kind = _KIND_OF.get(key)
        if kind is not None and not kind(value):
            raise UnexpectedAnswer(f'the response has an invalid "{key}"')
        return value


def parse(body: bytes | str) -> AnswerObject:
    """Return the object in the body of an answer.

    Raises:
        UnexpectedAnswer: the body is not a JSON object.
    """
    document = _decoded(body)
    if not isinstance(document, AnswerObject):
        raise UnexpectedAnswer("the response is not a JSON object")
    return document


def parse_list(body: bytes | str) -> list[AnswerObject]:
    """Return the objects of the list in the body of an answer.

    Raises:
        UnexpectedAnswer: the body is not a list of JSON objects.
    """
    document = _decoded(body)
    if not _is_list_of(_is_record)(document):
        raise UnexpectedAnswer("the response is not a list of JSON objects")
    return list(document)


def _decoded(body: bytes | str) -> Any:
    try:
        return json.loads(body, object_hook=AnswerObject)
    except (ValueError, RecursionError):
        return None
