"""Handlers for access: login and logout, the generated password, tokens, and accounts of people.

The account `admin` is not among the accounts: its password is part of the daemon's configuration.
"""

import time

from msgspec import UNSET, structs

from api.auth.authentication import TOKEN_PREFIX, new_secret
from api.auth.identity import Role, hash_secret
from api.auth.passwords import ADMIN
from api.errors import ApiError
from api.operations.operation import Access, Call, Operation, json_of
from api.schemas import access as schemas
from api.schemas.wire_times import known_rfc3339, rfc3339
from api.worker_context import Context
from store import accounts, tokens
from store.accounts import Account
from store.sessions import MAX_AGE_MS
from store.tokens import Token

_OF_THE_PROXY = (400, 403)
"""Error statuses for a person whom a proxy has authenticated. A login would not help, so they are not hidden."""


@Operation(
    "POST",
    "/api/auth/login",
    role=Role.ANYBODY,
    body=schemas.LoginBody,
    body_required=True,
    sends={204: ("Set-Cookie",)},
    refusals=(401, 403, 429),
    access=Access.LOGIN,
    tag="authentication",
)
def login(context: Context, call: Call) -> None:
    """Log in: exchange the password of an account for a session cookie."""
    secret = call.body.password
    call.identity = context.auth.by_token(secret, by_browser=True)
    if call.identity is None:
        account = context.auth.check_password(call.req, call.body.username, secret)
        call.identity = context.auth.identity_of(account)
        secret = context.auth.open_session(account, call.entry())
    call.resp.set_cookie(
        context.auth.cookie,
        secret,
        max_age=MAX_AGE_MS // 1000,
        path=context.settings.base_path or "/",
        secure=call.req.env["wsgi.url_scheme"] == "https",
        http_only=True,
        same_site="Strict",
    )
    call.no_content()


@Operation(
    "POST",
    "/api/auth/logout",
    role=Role.ANYBODY,
    sends={204: ("Set-Cookie",)},
    refusals=(403,),
    access=Access.LOGIN,
    tag="authentication",
)
def logout(context: Context, call: Call) -> None:
    """Log out."""
    for digest, identity in context.auth.sessions_of(call.req).items():
        call.identity = identity
        context.command("session_delete", call.entry(), hash=digest)
    call.resp.unset_cookie(context.auth.cookie, path=context.settings.base_path or "/", same_site="Strict")
    call.no_content()


@Operation(
    "GET",
    "/api/auth/status",
    role=Role.ANYBODY,
    answers={200: json_of(schemas.AuthStatus)},
    refusals=(403,),
    access=Access.PUBLIC,
    tag="authentication",
)
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


@Operation(
    "GET",
    "/api/local/credentials",
    role=Role.ADMIN,
    answers={200: json_of(schemas.Credentials)},
    refusals=(403, 404),
    access=Access.LOCAL,
    tag="authentication",
)
def get_local_credentials(context: Context, call: Call) -> None:
    """Get the generated password (Unix socket only)."""
    if not context.settings.password_ephemeral:
        raise ApiError(404, "The password is configured and is not shown")
    call.answer(schemas.Credentials(ephemeral=True, password=context.settings.password))


def _token_info(token: Token, now_ms: int) -> schemas.TokenInfo:
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


@Operation("GET", "/api/tokens", role=Role.ADMIN, answers={200: json_of(schemas.Tokens)}, tag="authentication")
def list_tokens(context: Context, call: Call) -> None:
    """List all tokens, without their secrets."""
    now_ms = time.time_ns() // 1_000_000
    call.answer(schemas.Tokens(items=[_token_info(token, now_ms) for token in context.reads(tokens.all_tokens)]))


@Operation(
    "POST",
    "/api/tokens",
    role=Role.ADMIN,
    body=schemas.TokenBody,
    body_required=True,
    answers={201: json_of(schemas.NewToken)},
    tag="authentication",
)
def create_token(context: Context, call: Call) -> None:
    """Create a token; only this response has its secret."""
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
        context.command("token_create", call.entry(), **token._asdict())
    except ApiError as err:
        # The scheduler may have stored the token and died before it answered. The token is then valid, and an error
        # response would lose its secret forever.
        if err.status != 503 or context.reads(tokens.find, token.hash, now_ms) is None:
            raise
    call.answer(schemas.NewToken(**structs.asdict(_token_info(token, now_ms)), token=secret), 201)


@Operation("DELETE", "/api/tokens/{tokenName}", role=Role.ADMIN, refusals=(404,), tag="authentication")
def revoke_token(context: Context, call: Call) -> None:
    """Revoke a token; its streams end within seconds."""
    name = call.path["tokenName"]
    if not context.command("token_delete", call.entry(), name=name)["found"]:
        raise ApiError(404, f'No token named "{name}"')
    call.no_content()


def _account_info(account: Account) -> schemas.AccountInfo:
    return schemas.AccountInfo(
        name=account.name,
        role=account.role,
        tasks=account.tasks or UNSET,
        created_at=rfc3339(account.created_at),
        created_by=account.created_by,
        password_changed_at=rfc3339(account.password_changed_at),
    )


@Operation("GET", "/api/users", role=Role.ADMIN, answers={200: json_of(schemas.Accounts)}, tag="authentication")
def list_users(context: Context, call: Call) -> None:
    """List all accounts of people."""
    call.answer(schemas.Accounts(items=[_account_info(account) for account in context.reads(accounts.all_accounts)]))


@Operation(
    "POST",
    "/api/users",
    role=Role.ADMIN,
    body=schemas.AccountBody,
    body_required=True,
    answers={201: json_of(schemas.AccountInfo)},
    tag="authentication",
)
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
        context.command("account_create", call.entry(), **account._asdict())
    except ApiError as err:
        # The scheduler may have stored the account and died before it answered.
        if err.status != 503 or context.reads(accounts.by_tag, account.tag) is None:
            raise
    call.answer(_account_info(account), 201)


@Operation(
    "POST",
    "/api/users/{userName}/password",
    role=Role.ADMIN,
    body=schemas.PasswordBody,
    body_required=True,
    refusals=(404,),
    tag="authentication",
)
def set_user_password(context: Context, call: Call) -> None:
    """Change the password of an account; its sessions and streams end within seconds."""
    name = _name(call)
    arguments = {"name": name, "password_hash": context.auth.hash_password(call.body.password), "tag": new_secret()}
    if not context.command("account_password", call.entry(), **arguments)["found"]:
        raise ApiError(404, f'No account named "{name}"')
    call.no_content()


@Operation("DELETE", "/api/users/{userName}", role=Role.ADMIN, refusals=(404,), tag="authentication")
def remove_user(context: Context, call: Call) -> None:
    """Remove an account; its sessions and streams end within seconds."""
    name = _name(call)
    if not context.command("account_delete", call.entry(), name=name)["found"]:
        raise ApiError(404, f'No account named "{name}"')
    call.no_content()


def _name(call: Call) -> str:
    name = call.path["userName"]
    if name == ADMIN:
        raise ApiError(
            409, f"{ADMIN} has the daemon's own password: change RINGWARD_PASSWORD or password_file in [http]"
        )
    return name
