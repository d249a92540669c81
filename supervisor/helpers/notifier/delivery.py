"""Delivers one message through Apprise.

Apprise reports only success or failure. It logs the reasons and hides the answers of web servers. This module captures
both during a delivery. Apprise is loaded with the first message.

Texts are escaped so that chat services do not interpret the output of a run as mentions, links or formatting. Messages
are plain text, which Apprise escapes where it knows that a service reads markup. It does not do so for services that
read Markdown in plain text, and it never removes mentions.
"""

import functools
import importlib
import logging
import re
import smtplib
import sys
import threading
from contextvars import ContextVar
from dataclasses import dataclass, field
from http import HTTPStatus
from time import time
from typing import TYPE_CHECKING, Any
from urllib.parse import parse_qs, urljoin, urlsplit

from logring.errors import LogError
from logring.layout import SYSTEM
from logring.log_search import displayed
from logring.reader import LogReader
from supervisor.helpers.notifier.fitting import Output, fits_in, fitted
from supervisor.helpers.notifier.masking import masked
from supervisor.helpers.notifier.redirects import refusal_of_redirect
from supervisor.helpers.retry_after import retry_after_ms
from supervisor.ipc.delivery_request import DeliveryRequest, DeliveryResult

_READ_MARKDOWN = frozenset({"Discord", "Guilded", "Mattermost", "Zulip"})
"""Services, by Apprise's names, that read plain text as Markdown."""
_READ_MENTIONS = _READ_MARKDOWN | {"Google Chat", "Revolt", "Rocket.Chat", "Slack"}
_NOTHING = "\N{ZERO WIDTH SPACE}"
"""Separates a special character from the text after it, so that no service reads both as one token, even after
unescaping."""

_MENTION = re.compile(r"@(\S)")
_REFERENCE = re.compile(r"<([!#@])")
"""Slack references, such as <!channel> or <#C024BE7LR>."""
_SCHEME = re.compile(r"://")
_URL = re.compile(r"(https?://\S+)")
_SPECIAL = re.compile(r"([\\`*_~|<>\[\]()#:])")
_FIRST = re.compile(r"^([ \t]*)([-+=])", re.MULTILINE)
_POINT = re.compile(r"(^[ \t]*\d+|\bwww)\.", re.MULTILINE)


def escaped(text: str, service: str, url: str, *, links: bool = False) -> str:
    """Escape `text` so that the service shows it literally.

    Args:
        text: The plain text.
        service: Apprise's name of the service.
        url: The URL of the notifier, which may set a format.
        links: Whether URLs in the text stay links, for text that Ringward itself has written.
    """
    if service not in _READ_MENTIONS:
        return text
    markdown = service in _READ_MARKDOWN and "format" not in parse_qs(urlsplit(url).query)
    parts = _URL.split(text) if links else [text]
    return "".join(part if index % 2 else _plain(part, markdown=markdown) for index, part in enumerate(parts))


def _plain(text: str, *, markdown: bool) -> str:
    if markdown:
        text = _SPECIAL.sub(r"\\\1", text)
        text = _FIRST.sub(r"\1\\\2", text)
        text = _POINT.sub(r"\1\\.", text)
    else:
        text = _REFERENCE.sub(rf"<{_NOTHING}\1", text)
        text = _SCHEME.sub(f":{_NOTHING}//", text)
    return _MENTION.sub(rf"@{_NOTHING}\1", text)


_LINES = 20
_MAX_CHARS = 300
"""Limit of characters in a line."""
_MAX_BYTES = 1 << 20


def last_lines(ring: str | None, file: str | None) -> Output:
    """Return the last lines of a log, with system lines in brackets; no lines if the log cannot be read."""
    if file is None:
        return Output()
    lines: list[str] = []
    reader = LogReader(ring, file)
    try:
        head = reader.head()
        position = max(head.first_available, head.lines - _LINES)
        while position < head.lines:
            page = reader.read(position, _LINES, _MAX_BYTES)
            lines += [_shown(line.text, system=line.stream == SYSTEM) for line in page.lines]
            position = max(page.next, position + 1)
    except (LogError, OSError):
        return Output()
    finally:
        reader.close()
    return Output(lines[-_LINES:], head.lines - len(lines[-_LINES:]))


def _shown(text: bytes, *, system: bool) -> str:
    """Return a line without escape sequences and control characters, of at most 300 characters."""
    whole = displayed(text).decode().rstrip("\r\n").expandtabs(4)
    plain = "".join(char if char.isprintable() else "\N{REPLACEMENT CHARACTER}" for char in whole)
    short = plain if len(plain) <= _MAX_CHARS else f"{plain[: _MAX_CHARS - 1]}…"
    return f"[{short}]" if system else short


if TYPE_CHECKING:
    import requests

_MAX_ERROR = 300
_RESTS = frozenset({429, 503})
"""Status codes whose Retry-After header is honoured (RFC 9110, RFC 6585)."""
_REFUSALS = frozenset({400, 413, 422})
"""Status codes with which a service refuses a message because of its contents, while others may pass."""
_PERMANENT, _TOO_LARGE_FOR_MAIL = 500, 552
"""Reply codes of mail servers (RFC 5321, 4.2)."""
_OF_THE_MESSAGE = frozenset(
    ("accept", "accept-encoding", "connection", "content-length", "content-type", "transfer-encoding", "user-agent")
)
"""Headers that a redirected request may keep."""
_WITH_MESSAGE = frozenset({"POST", "PUT", "PATCH"})
_LOSES_BODY = frozenset({301, 302, 303})
"""Redirects that drop the message, mostly by changing to GET (RFC 9110, 15.4)."""


@dataclass
class _DeliveryLog:
    """Log messages and answers that were captured during one delivery."""

    messages: list[str] = field(default_factory=list)
    retry_after_ms: int | None = None
    refused: bool = False
    """Whether the last answer refuses this message only."""
    lost: str | None = None
    """Why the message was lost although Apprise reports success; None: it was not lost."""


_captured: ContextVar[_DeliveryLog | None] = ContextVar("captured", default=None)


class _LogCapture(logging.Handler):
    """Captures the messages that Apprise logs during a delivery, and the answer of a mail server that refuses it."""

    def emit(self, record: logging.LogRecord) -> None:
        captured = _captured.get()
        if captured is None:
            return
        if record.levelno >= logging.WARNING:
            captured.messages.append(record.getMessage())
        # Apprise mentions this answer only when debugging, while it handles the exception.
        err = sys.exc_info()[1]
        if isinstance(err, smtplib.SMTPResponseException):
            text = err.smtp_error if isinstance(err.smtp_error, str) else err.smtp_error.decode(errors="replace")
            captured.messages.append(f"{err.smtp_code} {text}")
            captured.refused = err.smtp_code == _TOO_LARGE_FOR_MAIL or (
                isinstance(err, smtplib.SMTPDataError) and err.smtp_code >= _PERMANENT
            )


_loading = threading.Lock()


@functools.cache
def _loaded() -> object:
    sessions = importlib.import_module("requests.sessions")
    adapter: Any = sessions.HTTPAdapter

    class InspectingAdapter(adapter):  # type: ignore[misc]
        """An HTTP adapter that records Retry-After and restricts redirects."""

        def send(self, *args: object, **kwargs: object) -> object:
            """Send a request and inspect its response."""
            return _inspected(super().send(*args, **kwargs))

    # Apprise calls functions such as requests.post(). Each opens its own session, which looks up the class by this
    # name. Neither library has a hook for that. These were rejected:
    # * a response hook of requests: only the caller can add it to a request or session.
    # * the asset and URL parameters of Apprise: they have no session, and can only allow or forbid all redirects.
    # * a proxy: it sees neither status nor headers of an answer over TLS.
    # * logs of urllib3 and audit events of http.client: they have no headers of answers, and cannot change a redirect.
    sessions.HTTPAdapter = InspectingAdapter  # type: ignore[attr-defined]
    apprise = importlib.import_module("apprise")
    logger: logging.Logger = importlib.import_module("apprise.logger").logger
    logger.propagate = False
    logger.setLevel(logging.DEBUG)
    logger.addHandler(_LogCapture())
    return apprise


def _apprise() -> Any:
    """Load Apprise, unless it is loaded, so that its logs and responses are captured.

    Raises:
        ImportError: Apprise cannot be loaded.
    """
    with _loading:
        return _loaded()


def _inspected(response: "requests.Response") -> "requests.Response":
    captured = _captured.get()
    if captured is not None:
        captured.refused = response.status_code in _REFUSALS
        if response.status_code in _RESTS:
            captured.retry_after_ms = retry_after_ms(response.headers.get("Retry-After"), time())
    lost = _restrict_redirect(response)
    if captured is not None and lost is not None:
        captured.lost = f"status {response.status_code} {lost}"
    return response


def _restrict_redirect(response: "requests.Response") -> str | None:
    """Block redirects to other hosts, and remove the headers of the service from redirected requests.

    Returns:
        Why the message is lost; None if it is not lost.
    """
    if not response.is_redirect:
        return None
    refusal = refusal_of_redirect(response.request.url or "", response.headers["Location"])
    if refusal is not None:
        del response.headers["Location"]  # without this header, requests returns the redirect as the answer
        return refusal
    away = leads_away(response)
    # requests copies these headers to the next request.
    headers = response.request.headers
    for name in [name for name in headers if name.lower() not in _OF_THE_MESSAGE]:
        del headers[name]
    return "redirects without the message: correct the URL" if away else None


def leads_away(response: "requests.Response") -> bool:
    """Return whether a redirect loses the message.

    A 302 or 303 redirect to the same server does not: it can be the confirmation of a form.
    """
    request, target = response.request, response.headers.get("Location")
    if request.method not in _WITH_MESSAGE or response.status_code not in _LOSES_BODY or target is None:
        return False
    here = urlsplit(request.url or "")
    there = urlsplit(urljoin(request.url or "", target))
    return response.status_code == HTTPStatus.MOVED_PERMANENTLY or here[:2] != there[:2]


def deliver(request: DeliveryRequest) -> DeliveryResult:
    """Deliver a message. There is no time limit; the caller must impose one."""
    try:
        apprise = _apprise()
    except ImportError as err:
        return DeliveryResult(f"cannot load Apprise: {err}")
    captured = _DeliveryLog()
    token = _captured.set(captured)
    try:
        asset = apprise.AppriseAsset(app_id="Ringward", app_desc="Ringward", async_mode=False, secure_logging=True)
        service = apprise.Apprise(asset=asset)
        if not service.add(request.url):
            return DeliveryResult("Apprise does not support the URL")
        plugin = service[0]
        name, plain = str(plugin.service_name), apprise.NotifyFormat.TEXT
        text = fitted(
            request,
            Output(request.output) if request.output else last_lines(request.ring, request.file),
            fits_in(plugin, importlib.import_module("apprise.conversion").convert_between, plain),
            lambda part, links: escaped(part, name, request.url, links=links),
        )
        done = service.notify(title=text.title, body=text.body, notify_type=request.type, body_format=plain)
        if done and captured.lost is None:
            return DeliveryResult(items=text.items)
        error = captured.lost or "; ".join(dict.fromkeys(captured.messages)) or "the service rejected the message"
        error = " ".join(error.split())
    except Exception as err:  # noqa: BLE001 - any exception of a plugin is the result of this message
        error = f"{type(err).__name__}: {err}"
    finally:
        _captured.reset(token)
    return DeliveryResult(masked(error, request.url)[:_MAX_ERROR], captured.retry_after_ms, refused=captured.refused)
