"""Operations of ``control.sock``: registration of methods, checks of arguments, and answers.

Callers are not trusted: a worker may run as another user, with any code. So arguments of the wrong type, or that the
database cannot store, are rejected before the operation begins.
"""

from collections.abc import Callable
from typing import Annotated, Any, TypeVar

import msgspec
from msgspec import Meta, Struct

Reply = Callable[[dict[str, object]], None]
Operation = Callable[[dict[str, Any], Reply], None]

Number = Annotated[int, Meta(ge=-(1 << 63), le=(1 << 63) - 1)]
Ulid = Annotated[str, Meta(pattern=r"^[0-7][0-9A-HJKMNP-TV-Z]{25}\Z")]
"""A ULID, checked strictly because it becomes part of file names."""


class Arguments(msgspec.Struct, kw_only=True):
    """The arguments of an operation; this class is for an operation without any. Unknown fields are ignored."""


A = TypeVar("A", bound=Arguments)
S = TypeVar("S")
_ARGUMENTS: dict[Callable[..., object], type[Arguments]] = {}
"""The type of the arguments of each operation, by method."""


def operation(arguments: type[A]) -> Callable[[Callable[[S, A, Reply], None]], Callable[[S, A, Reply], None]]:
    """Make a method the operation of the same name. It must reply once, after its effect is stored."""

    def register(method: Callable[[S, A, Reply], None]) -> Callable[[S, A, Reply], None]:
        _ARGUMENTS[method] = arguments
        return method

    return register


class _CheckedOperation(Struct, frozen=True):
    """Calls a method with its arguments, or answers 400."""

    name: str
    arguments: type[Arguments]
    method: Callable[[object, Reply], None]

    def __call__(self, arguments: dict[str, object], reply: Reply) -> None:
        try:
            request = msgspec.convert(arguments, self.arguments)
        except msgspec.ValidationError as err:
            reply(refused(400, f"{self.name}: {err}"))
        else:
            self.method(request, reply)


def operations_of(*subjects: object) -> dict[str, Operation]:
    """Return the operations that `subjects` have, by name."""
    return {
        name: _CheckedOperation(name, _ARGUMENTS[method], getattr(subject, name))
        for subject in subjects
        for name, method in vars(type(subject)).items()
        if callable(method) and method in _ARGUMENTS
    }


def done(**result: object) -> dict[str, object]:
    """Return an answer that reports success."""
    return {"ok": True, "result": result}


def refused(status: int, detail: str, errors: list[dict[str, Any]] | None = None) -> dict[str, Any]:
    """Return an answer that refuses a request; the API worker responds with this HTTP status."""
    return {"ok": False, "status": status, "detail": detail, "errors": errors or []}


def refused_for_now(detail: str, retry_after_s: int) -> dict[str, object]:
    """Return an answer that refuses a client that exceeds its rate limit (429)."""
    return {**refused(429, detail), "retry_after_s": retry_after_s}


def unavailable(reply: Reply, failure: str = "the database cannot be written") -> Callable[[BaseException], None]:
    """Return the `on_failed` of a change or read of a waiting client; it answers 503 with `failure` and the error."""
    return lambda error: reply(refused(503, f"{failure}: {error}"))


def shutting_down() -> dict[str, Any]:
    """Return the refusal (503) of a request that the daemon no longer carries out during its shutdown."""
    return refused(503, "the daemon is shutting down")
