"""Proofs that the sender of a webhook has the secret. This module has no side effects.

=======  ===================================================================================
kind     proof
=======  ===================================================================================
github   ``X-Hub-Signature-256: sha256=HEX``, the HMAC-SHA256 of the body
gitlab   ``X-Gitlab-Token``, the secret itself
generic  ``webhook-id``, ``webhook-timestamp`` and ``webhook-signature: v1,BASE64`` of Standard
         Webhooks: the HMAC-SHA256 of ``ID.TIMESTAMP.BODY``; or GitHub's header; or
         ``Authorization: Bearer SECRET``
=======  ===================================================================================

Each check computes one HMAC of the body, so its time reveals neither the kind of a hook nor whether it exists.
"""

import base64
import binascii
import hmac
from collections.abc import Callable

from msgspec import Struct

TOLERANCE_S = 300
"""Maximum difference between the signed time and now."""
_STANDARD_SECRET = "whsec_"  # noqa: S105 - how Standard Webhooks marks a secret in Base64
_MAX_SIGNATURES = 20

Headers = Callable[[str], str | None]


class Proof(Struct, frozen=True):
    """A valid proof.

    Attributes:
        message: Identifier of the signed message, equal in a repeated request; empty for a token.
        signed_at_s: The signed time in Unix seconds; None if the signature has none.
    """

    message: str = ""
    signed_at_s: int | None = None

    def is_current(self, now_s: float) -> bool:
        """Return whether the signed time, if any, is within `TOLERANCE_S` of `now_s`."""
        return self.signed_at_s is None or abs(now_s - self.signed_at_s) <= TOLERANCE_S


def find(kind: str, secret: str, header: Headers, body: bytes) -> Proof | None:
    """Return the proof in a request; None if it is missing or wrong."""
    signatures = (header("webhook-signature") or "").split()[:_MAX_SIGNATURES] if kind == "generic" else []
    if signatures:
        return _standard(signatures, secret, header, body)
    digest = hmac.digest(secret.encode(), body, "sha256")
    if kind == "gitlab":
        return Proof() if _same(header("X-Gitlab-Token"), secret) else None
    signature = header("X-Hub-Signature-256")
    if kind == "github" or signature is not None:
        return Proof(digest.hex()) if _same(signature, f"sha256={digest.hex()}") else None
    scheme, _, token = (header("Authorization") or "").partition(" ")
    return Proof() if scheme.lower() == "bearer" and _same(token.strip(), secret) else None


def _standard(signatures: list[str], secret: str, header: Headers, body: bytes) -> Proof | None:
    """Return the proof by the rules of Standard Webhooks; one of several signatures is enough."""
    delivery, timestamp = header("webhook-id") or "", header("webhook-timestamp") or ""
    signed = f"{delivery}.{timestamp}.".encode("latin-1", "replace") + body
    digest = base64.b64encode(hmac.digest(_key(secret), signed, "sha256")).decode()
    matching = [signature for signature in signatures if _same(signature, f"v1,{digest}")]
    if not matching or not delivery or not timestamp.isascii() or not timestamp.isdigit() or len(timestamp) > 15:
        return None
    return Proof(delivery, int(timestamp))


def _key(secret: str) -> bytes:
    if secret.startswith(_STANDARD_SECRET):
        try:
            return base64.b64decode(secret.removeprefix(_STANDARD_SECRET), validate=True)
        except binascii.Error:
            pass  # another kind of secret that happens to start with the prefix
    return secret.encode()


def _same(given: str | None, expected: str) -> bool:
    """Compare a header's value with a secret or signature in constant time."""
    # WSGI decodes headers as Latin-1.
    return hmac.compare_digest((given or "").encode("latin-1", "replace"), expected.encode())
