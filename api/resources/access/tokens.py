"""Tokens: made, listed, revoked."""

import time

from msgspec import UNSET

from api.auth.authentication import TOKEN_PREFIX, asked, new_secret
from api.auth.identity import Role, hash_secret
from api.errors import ApiError
from api.operations.operation import Call, Operation, json_of
from api.schemas import tokens as schemas
from api.schemas.known import known_rfc3339
from api.schemas.wire_times import rfc3339
from api.worker_context import Context
from store import tokens
from store.tokens import Token


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
    """All tokens, without their secrets."""
    now_ms = time.time_ns() // 1_000_000
    call.answer(schemas.Tokens(items=[_info(token, now_ms) for token in context.reads(tokens.all_tokens)]))


def create_token(context: Context, call: Call) -> None:
    """Make a token. This answer is the only place where its secret ever stands."""
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
        # A scheduler that stored it and died before it could answer: nobody could ever learn the secret again.
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


OPERATIONS = (
    Operation(
        method="GET",
        path="/api/tokens",
        id="listTokens",
        role=Role.ADMIN,
        summary="List all tokens, without their secrets.",
        handler=list_tokens,
        answers={200: json_of(schemas.Tokens)},
        tag="authentication",
    ),
    Operation(
        method="POST",
        path="/api/tokens",
        id="createToken",
        role=Role.ADMIN,
        summary="Create a token; only this response has its secret.",
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
        id="revokeToken",
        role=Role.ADMIN,
        summary="Revoke a token; its streams end within seconds.",
        handler=revoke_token,
        answers={204: None},
        refusals=(404, 422, 503),
        tag="authentication",
    ),
)
