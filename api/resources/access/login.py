"""Logging in and out, and the password of this start."""

from msgspec import UNSET

from api.auth.identity import Identity, Role
from api.errors import ApiError
from api.operations.operation import Access, Call, Operation, json_of
from api.schemas import records as schemas
from api.worker_context import Context
from store.sessions import MAX_AGE_MS

_WEB = Identity("session", "web")


def login(context: Context, call: Call) -> None:
    """Exchange the password for a session cookie."""
    context.auth.check_password(call.req, call.body.password)
    call.identity = _WEB
    call.resp.set_cookie(
        context.auth.cookie,
        context.auth.open_session(),
        max_age=MAX_AGE_MS // 1000,
        path=context.boot.base_path or "/",
        secure=call.req.env["wsgi.url_scheme"] == "https",
        http_only=True,
        same_site="Strict",
    )
    call.no_content()


def logout(context: Context, call: Call) -> None:
    """End the session; its streams end within seconds."""
    if context.auth.close_sessions(call.req):
        call.identity = _WEB
    call.resp.unset_cookie(context.auth.cookie, path=context.boot.base_path or "/", same_site="Strict")
    call.no_content()


def auth_status(context: Context, call: Call) -> None:
    """Whether the request is authenticated."""
    try:
        identity = context.auth.identify(call.req)
    except ApiError:
        identity = None
    if identity is None:
        call.answer(schemas.AuthStatus(authenticated=False))
    else:
        call.answer(
            schemas.AuthStatus(
                authenticated=True,
                method=identity.method,
                role=identity.role_name,
                tasks=identity.tasks or UNSET,
            )
        )


def credentials(context: Context, call: Call) -> None:
    """The password that was made for this start."""
    if not context.boot.password_ephemeral:
        raise ApiError(404, "The password is configured; it is not shown")
    call.answer(schemas.Credentials(ephemeral=True, password=context.boot.password))


OPERATIONS = (
    Operation(
        method="POST",
        path="/api/auth/login",
        id="login",
        role=Role.ANYBODY,
        summary="Log in: exchange the password for a session cookie.",
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
        id="logout",
        role=Role.ANYBODY,
        summary="Log out.",
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
        id="getAuthStatus",
        role=Role.ANYBODY,
        summary="Get whether and how the request is authenticated.",
        handler=auth_status,
        answers={200: json_of(schemas.AuthStatus)},
        access=Access.PUBLIC,
        tag="authentication",
    ),
    Operation(
        method="GET",
        path="/api/local/credentials",
        id="getLocalCredentials",
        role=Role.ADMIN,
        summary="Get the generated password (Unix socket only).",
        handler=credentials,
        answers={200: json_of(schemas.Credentials)},
        refusals=(403, 404),
        access=Access.LOCAL,
        tag="authentication",
    ),
)
