"""Valid JSON with values that no text or number of this API can hold."""

import json

import pytest

from tests.api.support.credentials import JSON
from tests.api.support.harness import Daemon

SELECTOR = "/api/runs/bulk/stop"
SURROGATE = "contains \\ud800, a lone surrogate, which stands for no character"
NUMBER = "is a number out of range: the largest is about 1.8e308"


@pytest.mark.parametrize(
    ("body", "errors"),
    [
        (b'{"filter": {"search": "a\\ud800"}}', {"body.filter.search": SURROGATE}),
        (b'{"filter": {"search": "\\ud800a"}}', {"body.filter.search": SURROGATE}),
        (b'{"ids": ["a", "\\ud83d\\ude00", "\\ud800"]}', {"body.ids[2]": SURROGATE}),
        (b'{"\\ud800": 1}', {"body.\\ud800": SURROGATE}),
        (b'{"filter": {"exit_code_min": 1e400}}', {"body.filter.exit_code_min": NUMBER}),
        (b'{"filter": {"exit_code_min": -1e400}}', {"body.filter.exit_code_min": NUMBER}),
        (b'{"filter": {"exit_code_min": ' + b"9" * 5000 + b"}}", {"body.filter.exit_code_min": NUMBER}),
        (b'[1e400, "\\ud800"]', {"body[0]": NUMBER, "body[1]": SURROGATE}),
        (b'"\\ud800"', {"body": SURROGATE}),
    ],
)
def test_each_value_is_named(daemon: Daemon, body: bytes, errors: dict[str, str]) -> None:
    """422 names each value and says why it cannot be used, without repeating it."""
    answer = daemon.ask("POST", SELECTOR, body, JSON)
    assert answer.status == 422
    assert answer.json["errors"] == [{"location": place, "message": text} for place, text in errors.items()]


@pytest.mark.parametrize(
    "body",
    [b'{"ids": NaN}', b'{"ids": ["\\ud800"}', b'{"ids": "\xed\xa0\x80"}', b'{"ids": 1e400', b"\xef\xbb\xbf{}", b"1e"],
)
def test_invalid_json_gets_400(daemon: Daemon, body: bytes) -> None:
    """A text that is not JSON, or not UTF-8, still gets 400."""
    answer = daemon.ask("POST", SELECTOR, body, JSON)
    assert (answer.status, answer.json["errors"]) == (400, [])
    assert answer.json["detail"].startswith(("The body is not JSON: ", "The body is not UTF-8"))


def test_only_the_first_values_are_named(daemon: Daemon) -> None:
    """An answer names the first hundred of many such values."""
    answer = daemon.ask("POST", SELECTOR, json.dumps({"ids": ["\ud800"] * 1000}).encode(), JSON)
    assert (answer.status, len(answer.json["errors"])) == (422, 100)


@pytest.mark.parametrize(("name", "status"), [("a\n", 422), ("...", 422), ("", 422), ("a" * 101, 422), ("..a", 201)])
def test_names_of_tokens(daemon: Daemon, name: str, status: int) -> None:
    """A name has at most 100 allowed characters, and is not just dots."""
    body = json.dumps({"name": name, "role": "viewer"}).encode()
    assert daemon.ask("POST", "/api/tokens", body, JSON).status == status
