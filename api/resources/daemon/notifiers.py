"""Notifiers: how deliveries go, and trying one."""

from msgspec import UNSET

from api.auth.authentication import asked
from api.auth.identity import Role
from api.operations.operation import Call, Operation, json_of
from api.schemas.daemon_info import Notifier, Notifiers, Tried
from api.schemas.known import known_rfc3339
from api.worker_context import Context


def list_notifiers(context: Context, call: Call) -> None:
    """All that are configured, without their URLs."""
    found = asked(lambda: context.control.call("notifiers"))["items"]
    call.answer(
        Notifiers(
            items=[
                Notifier(
                    name=one["name"],
                    waiting=one["waiting"],
                    given_up=one["given_up"],
                    delivered_at=known_rfc3339(one["delivered_at"]),
                    failed_at=known_rfc3339(one["failed_at"]),
                    error=one["error"] or UNSET,
                )
                for one in found
            ]
        )
    )


def test_notifier(context: Context, call: Call) -> None:
    """Send a message, and wait for what becomes of it."""
    name = call.path["notifierName"]
    error = asked(lambda: context.control.call_patiently("notifier_test", name=name))["error"]
    call.answer(Tried(delivered=error is None, error=error or UNSET))


OPERATIONS = (
    Operation(
        method="GET",
        path="/api/notifiers",
        id="listNotifiers",
        role=Role.VIEWER,
        summary="List the configured notifiers and the state of their deliveries.",
        handler=list_notifiers,
        answers={200: json_of(Notifiers)},
        refusals=(503,),
        tag="notifications",
    ),
    Operation(
        method="POST",
        path="/api/notifiers/{notifierName}/test",
        id="testNotifier",
        role=Role.ADMIN,
        summary="Send a test message through a notifier and wait for the result.",
        handler=test_notifier,
        answers={200: json_of(Tried)},
        refusals=(404, 422, 503),
        tag="notifications",
    ),
)
