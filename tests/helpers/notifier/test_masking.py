"""Secrets in URLs."""

import pytest

from supervisor.helpers.notifier.masking import masked


@pytest.mark.parametrize(
    ("url", "secrets"),
    [
        ("mailto://user:pass%20word@smtp.example.com?to=ops@example.com", ["pass word", "pass%20word"]),
        ("slack://TokenA1/TokenB2/TokenC3/#channel", ["TokenA1", "TokenB2", "TokenC3", "tokena1"]),
        ("json://example.com/hooks/abcd-1234?key=S3cretKey", ["abcd-1234", "S3cretKey"]),
        ("ntfy://topic-that-is-secret", ["topic-that-is-secret"]),
        ("https://hc.example.com/ping/8e1f-uuid", ["8e1f-uuid"]),
    ],
)
def test_secrets_in_urls_are_masked(url: str, secrets: list[str]) -> None:
    """The URL and each token, password, path or value in it are masked, and other words stay."""
    messages = f"cannot POST {url}: {' '.join(secrets)}: connection to example.com refused"
    masked_text = masked(messages, url)
    assert not any(secret in masked_text for secret in [url, *secrets])
    assert "cannot POST" in masked_text
    assert "refused" in masked_text


def test_host_is_not_masked() -> None:
    """The name of an unreachable host is not masked."""
    url = "json://hooks.example.com:8080/abcd-1234"
    assert masked("no route to hooks.example.com", url) == "no route to hooks.example.com"
