"""Handlers for accounts of people.

The account `admin` is none of these: its password is part of the daemon's configuration.
"""

import time

from msgspec import UNSET

from api.auth.authentication import asked, new_secret
from api.auth.identity import Role
from api.auth.passwords import ADMIN
from api.errors import ApiError
from api.operations.operation import Call, Operation, json_of
from api.schemas import access as schemas
from api.schemas.wire_times import rfc3339
from api.worker_context import Context
from store import accounts
from store.accounts import Account


def _info(account: Account) -> schemas.AccountInfo:
    return schemas.AccountInfo(
        name=account.name,
        role=account.role,
        tasks=account.tasks or UNSET,
        created_at=rfc3339(account.created_at),
        created_by=account.created_by,
        password_changed_at=rfc3339(account.password_changed_at),
    )


def list_users(context: Context, call: Call) -> None:
    """List all accounts of people."""
    call.answer(schemas.Accounts(items=[_info(account) for account in context.reads(accounts.all_accounts)]))


def create_user(context: Context, call: Call) -> None:
    """Create an account with a password."""
    body: schemas.AccountBody = call.body
    call.target = body.name
    now_ms = time.time_ns() // 1_000_000
    account = Account(
        name=body.name,
        password_hash=context.auth.hash_password(body.password),
        tag=new_secret(),
        role=body.role,
        tasks=body.tasks or None,
        created_at=now_ms,
        created_by=call.by,
        password_changed_at=now_ms,
    )
    try:
        asked(lambda: context.control.call("account_create", **account._asdict()))
    except ApiError as err:
        # The scheduler may have stored the account and died before it answered.
        if err.status != 503 or context.reads(accounts.by_tag, account.tag) is None:
            raise
    call.answer(_info(account), 201)


def set_user_password(context: Context, call: Call) -> None:
    """Change the password of an account; its sessions and streams end within seconds."""
    name = _name(call)
    arguments = {"name": name, "password_hash": context.auth.hash_password(call.body.password), "tag": new_secret()}
    if not asked(lambda: context.control.call("account_password", **arguments))["found"]:
        raise ApiError(404, f'No account named "{name}"')
    call.no_content()


def remove_user(context: Context, call: Call) -> None:
    """Remove an account; its sessions and streams end within seconds."""
    name = _name(call)
    if not asked(lambda: context.control.call("account_delete", name=name))["found"]:
        raise ApiError(404, f'No account named "{name}"')
    call.no_content()


def _name(call: Call) -> str:
    name = call.path["userName"]
    if name == ADMIN:
        raise ApiError(
            409, f"{ADMIN} has the daemon's own password: change RINGWARD_PASSWORD or password_file in [http]"
        )
    return name


OPERATIONS = (
    Operation(
        method="GET",
        path="/api/users",
        role=Role.ADMIN,
        handler=list_users,
        answers={200: json_of(schemas.Accounts)},
        tag="authentication",
    ),
    Operation(
        method="POST",
        path="/api/users",
        role=Role.ADMIN,
        handler=create_user,
        body=schemas.AccountBody,
        body_required=True,
        answers={201: json_of(schemas.AccountInfo)},
        refusals=(409, 503),
        tag="authentication",
    ),
    Operation(
        method="POST",
        path="/api/users/{userName}/password",
        role=Role.ADMIN,
        handler=set_user_password,
        body=schemas.PasswordBody,
        body_required=True,
        answers={204: None},
        refusals=(404, 409, 503),
        tag="authentication",
    ),
    Operation(
        method="DELETE",
        path="/api/users/{userName}",
        role=Role.ADMIN,
        handler=remove_user,
        answers={204: None},
        refusals=(404, 409, 422, 503),
        tag="authentication",
    ),
)
