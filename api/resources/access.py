"""Handlers for access: login and logout, the generated password, tokens, and the audit log."""

import time

from msgspec import UNSET

from api.auth.authentication import TOKEN_PREFIX, asked, new_secret
from api.auth.identity import Role, hash_secret
from api.errors import ApiError
from api.operations.operation import Access, Call, Operation, json_of
from api.operations.parameters import integer
from api.schemas import access as schemas
from api.schemas.known_times import known_rfc3339
from api.schemas.wire_times import rfc3339
from api.worker_context import Context
from store import audit, tokens
from store.audit import StoredEntry
from store.sessions import MAX_AGE_MS
from store.tokens import Token

_REJECTED = 400
_OF_THE_PROXY = (400, 403)
"""Refusals of a person whom a proxy has authenticated: a login would not help."""


def login(context: Context, call: Call) -> None:
    """Log in: exchange the password of an account for a session cookie."""
    secret = call.body.password
    call.identity = context.auth.by_token(secret)
    if call.identity is None:
        account = context.auth.check_password(call.req, call.body.username, secret)
        call.identity = context.auth.identity_of(account)
        secret = context.auth.open_session(account)
    call.resp.set_cookie(
        context.auth.cookie,
        secret,
        max_age=MAX_AGE_MS // 1000,
        path=context.boot.base_path or "/",
        secure=call.req.env["wsgi.url_scheme"] == "https",
        http_only=True,
        same_site="Strict",
    )
    call.no_content()


def logout(context: Context, call: Call) -> None:
    """Log out."""
    call.identity = context.auth.close_sessions(call.req)
    call.resp.unset_cookie(context.auth.cookie, path=context.boot.base_path or "/", same_site="Strict")
    call.no_content()


def get_auth_status(context: Context, call: Call) -> None:
    """Get whether and how the request is authenticated."""
    try:
        identity = context.auth.identify(call.req)
    except ApiError as err:
        if err.status in _OF_THE_PROXY:
            raise
        identity = None
    if identity is None:
        call.answer(schemas.AuthStatus(authenticated=False))
    else:
        call.answer(
            schemas.AuthStatus(
                authenticated=True,
                method=identity.method,
                user=identity.user or UNSET,
                role=identity.role_name,
                tasks=identity.tasks or UNSET,
            )
        )


def get_local_credentials(context: Context, call: Call) -> None:
    """Get the generated password (Unix socket only)."""
    if not context.boot.password_ephemeral:
        raise ApiError(404, "The password is configured and is not shown")
    call.answer(schemas.Credentials(ephemeral=True, password=context.boot.password))


def _info(token: Token, now_ms: int) -> schemas.TokenInfo:
    return schemas.TokenInfo(
        name=token.name,
        role=token.role,
        tasks=token.tasks or UNSET,
        created_at=rfc3339(token.created_at),
        created_by=token.created_by,
        expires_at=known_rfc3339(token.expires_at),
        expired=token.expires_at is not None and now_ms >= token.expires_at,
        last_used_at=known_rfc3339(token.last_used_at),
    )


def list_tokens(context: Context, call: Call) -> None:
    """List all tokens, without their secrets."""
    now_ms = time.time_ns() // 1_000_000
    call.answer(schemas.Tokens(items=[_info(token, now_ms) for token in context.reads(tokens.all_tokens)]))


def create_token(context: Context, call: Call) -> None:
    """Create a token; only this response has its secret.

    No other response ever contains its secret.
    """
    body: schemas.TokenBody = call.body
    call.target = body.name
    secret = TOKEN_PREFIX + new_secret()
    now_ms = time.time_ns() // 1_000_000
    token = Token(
        name=body.name,
        hash=hash_secret(secret),
        role=body.role,
        tasks=body.tasks or None,
        created_at=now_ms,
        created_by=call.by,
        expires_at=now_ms + body.expires_in_ms if body.expires_in_ms else None,
        last_used_at=None,
    )
    try:
        asked(lambda: context.control.call("token_create", **token._asdict()))
    except ApiError as err:
        # The scheduler may have stored the token and died before it answered. Then the token is valid, and an error
        # would lose its secret for good.
        if err.status != 503 or context.reads(tokens.find, token.hash, now_ms) is None:
            raise
    info = _info(token, now_ms)
    fields = {name: getattr(info, name) for name in info.__struct_fields__ if name != "schema_link"}
    call.answer(schemas.NewToken(**fields, token=secret), 201)


def revoke_token(context: Context, call: Call) -> None:
    """Revoke a token; its streams end within seconds."""
    name = call.path["tokenName"]
    if not asked(lambda: context.control.call("token_delete", name=name))["found"]:
        raise ApiError(404, f'No token named "{name}"')
    call.no_content()


def _shown(stored: StoredEntry) -> schemas.AuditEntry:
    entry = stored.entry
    rejected = entry.status >= _REJECTED
    return schemas.AuditEntry(
        id=stored.id,
        at=rfc3339(entry.at),
        who=entry.who or UNSET,
        from_=entry.address,
        operation=entry.operation,
        target=entry.target or UNSET,
        status=entry.status,
        result=UNSET if rejected else entry.reason or UNSET,
        reason=entry.reason or UNSET if rejected else UNSET,
    )


def list_audit(context: Context, call: Call) -> None:
    """List who did what, newest first."""
    limit: int = call.query["limit"]
    found = context.reads(audit.entries, call.query["before"], limit)
    cursor = found[-1].id if len(found) == limit else UNSET
    call.answer(schemas.Audit(items=[_shown(entry) for entry in found], next_cursor=cursor))


OPERATIONS = (
    Operation(
        method="POST",
        path="/api/auth/login",
        role=Role.ANYBODY,
        handler=login,
        body=schemas.LoginBody,
        body_required=True,
        answers={204: None},
        sends={204: ("Set-Cookie",)},
        refusals=(400, 401, 403, 413, 415, 422, 429, 503),
        access=Access.LOGIN,
        tag="authentication",
    ),
    Operation(
        method="POST",
        path="/api/auth/logout",
        role=Role.ANYBODY,
        handler=logout,
        answers={204: None},
        sends={204: ("Set-Cookie",)},
        refusals=(403, 503),
        access=Access.LOGIN,
        tag="authentication",
    ),
    Operation(
        method="GET",
        path="/api/auth/status",
        role=Role.ANYBODY,
        handler=get_auth_status,
        answers={200: json_of(schemas.AuthStatus)},
        refusals=(400, 403),
        access=Access.PUBLIC,
        tag="authentication",
    ),
    Operation(
        method="GET",
        path="/api/local/credentials",
        role=Role.ADMIN,
        handler=get_local_credentials,
        answers={200: json_of(schemas.Credentials)},
        refusals=(403, 404),
        access=Access.LOCAL,
        tag="authentication",
    ),
    Operation(
        method="GET",
        path="/api/tokens",
        role=Role.ADMIN,
        handler=list_tokens,
        answers={200: json_of(schemas.Tokens)},
        tag="authentication",
    ),
    Operation(
        method="POST",
        path="/api/tokens",
        role=Role.ADMIN,
        handler=create_token,
        body=schemas.TokenBody,
        body_required=True,
        answers={201: json_of(schemas.NewToken)},
        refusals=(409, 503),
        tag="authentication",
    ),
    Operation(
        method="DELETE",
        path="/api/tokens/{tokenName}",
        role=Role.ADMIN,
        handler=revoke_token,
        answers={204: None},
        refusals=(404, 422, 503),
        tag="authentication",
    ),
    Operation(
        method="GET",
        path="/api/audit",
        role=Role.ADMIN,
        handler=list_audit,
        query=(
            integer("before", "Only entries older than this one: nextCursor of the previous page.", minimum=1),
            integer("limit", "Page size.", 50, minimum=1, maximum=500),
        ),
        answers={200: json_of(schemas.Audit)},
        refusals=(422,),
        tag="daemon",
    ),
)
