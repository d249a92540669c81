"""Proofs of webhook senders, with the examples that GitHub and Standard Webhooks publish."""

import base64
import hashlib
import hmac

import pytest

from api.auth.webhook_proof import Proof, find

SECRET = "It's a Secret to Everybody"
BODY = b"Hello, World!"
GITHUB = "sha256=757107ea0eb2509fc211221cce984b8a37570b6d7586c22c46f4379c8b043e17"
STANDARD_SECRET = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"
STANDARD_BODY = b'{"test": 2432232314}'
STANDARD = {
    "webhook-id": "msg_p5jXN8AQM9LWM0D4loKWxJek",
    "webhook-timestamp": "1614265330",
    "webhook-signature": "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE=",
}


def proof(kind: str, headers: dict[str, str], secret: str = SECRET, body: bytes = BODY) -> Proof | None:
    return find(kind, secret, headers.get, body)


@pytest.mark.parametrize("kind", ["github", "generic"])
def test_github_example(kind: str) -> None:
    """The signature in GitHub's documentation is accepted and identifies the request."""
    verified = proof(kind, {"X-Hub-Signature-256": GITHUB})
    assert verified == Proof(GITHUB.removeprefix("sha256="))
    assert verified.is_current(0)


@pytest.mark.parametrize(
    "signature", ["", GITHUB.removeprefix("sha256="), GITHUB.upper(), GITHUB[:-1], GITHUB + "0", "sha1=00", "ü", "\0"]
)
def test_wrong_signatures(signature: str) -> None:
    """A wrong or missing signature proves nothing."""
    for kind in ("github", "generic"):
        assert proof(kind, {"X-Hub-Signature-256": signature}) is None
        assert proof(kind, {"X-Hub-Signature-256": GITHUB}, body=BODY + b"\n") is None
        assert proof(kind, {"X-Hub-Signature-256": GITHUB}, secret=SECRET + "x") is None
        assert proof(kind, {}) is None


def test_gitlab_token() -> None:
    """GitLab sends the secret itself, which does not identify a request; proofs of other kinds do not count."""
    assert proof("gitlab", {"X-Gitlab-Token": SECRET}) == Proof()
    for headers in ({"X-Gitlab-Token": SECRET[:-1]}, {"X-Hub-Signature-256": GITHUB}, {}, {"X-Gitlab-Token": ""}):
        assert proof("gitlab", headers) is None
    assert proof("github", {"X-Gitlab-Token": SECRET}) is None


def test_bearer_token() -> None:
    """Only a generic hook accepts its secret as a bearer token."""
    for authorization in (f"Bearer {SECRET}", f"bearer  {SECRET} "):
        assert proof("generic", {"Authorization": authorization}) == Proof()
        assert proof("github", {"Authorization": authorization}) is None
        assert proof("gitlab", {"Authorization": authorization}) is None
    for authorization in (SECRET, f"Basic {SECRET}", "Bearer ", "Bearer", "Bearer x"):
        assert proof("generic", {"Authorization": authorization}) is None


def test_standard_webhooks_example() -> None:
    """The published example is accepted, with its id, and only within five minutes of its time."""
    verified = proof("generic", STANDARD, STANDARD_SECRET, STANDARD_BODY)
    assert verified == Proof(STANDARD["webhook-id"], 1614265330)
    assert verified.is_current(1614265330 - 300)
    assert verified.is_current(1614265330 + 300)
    assert not verified.is_current(1614265330 - 301)
    assert not verified.is_current(1614265330 + 301)


def test_one_of_several_signatures() -> None:
    """One valid signature suffices, because a sender may rotate its secret; a plain secret is used as it is."""
    headers = {"webhook-id": "1", "webhook-timestamp": "1614265330"}
    digest = hmac.digest(SECRET.encode(), b"1.1614265330." + BODY, hashlib.sha256)
    valid = f"v1,{base64.b64encode(digest).decode()}"
    assert proof("generic", {**headers, "webhook-signature": f"v1,AAAA v1a,BBBB {valid}"}) is not None
    assert proof("generic", {**headers, "webhook-signature": valid.replace("v1", "v2")}) is None
    assert proof("github", {**headers, "webhook-signature": valid}) is None


@pytest.mark.parametrize(
    "change",
    [
        {"webhook-id": "msg_other"},
        {"webhook-id": ""},
        {"webhook-timestamp": "1614265331"},
        {"webhook-timestamp": ""},
        {"webhook-signature": "v1,"},
        {"webhook-signature": "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OF="},
    ],
)
def test_changed_message(change: dict[str, str]) -> None:
    """The signature covers the id, the time and the body."""
    assert proof("generic", {**STANDARD, **change}, STANDARD_SECRET, STANDARD_BODY) is None
    # Another valid proof does not help: a message that claims to be signed has to be.
    both = {**STANDARD, **change, "Authorization": f"Bearer {STANDARD_SECRET}"}
    assert proof("generic", both, STANDARD_SECRET, STANDARD_BODY) is None


@pytest.mark.parametrize("timestamp", ["x", "-1", "1.5", "١٢٣", "9" * 16])
def test_invalid_signed_time(timestamp: str) -> None:
    """A signed time must be a whole number of seconds."""
    signed = f"1.{timestamp}.".encode("latin-1", "replace") + BODY
    digest = base64.b64encode(hmac.digest(SECRET.encode(), signed, hashlib.sha256)).decode()
    headers = {"webhook-id": "1", "webhook-timestamp": timestamp, "webhook-signature": f"v1,{digest}"}
    assert proof("generic", headers) is None
