"""Makes the text of a message fit what its service accepts.

Services refuse a text that is too long, and Apprise cuts nothing by default. The last parts to be cut are the title,
the link, and the beginning of the body, which says how a run ended. Output loses its first lines. A list loses its last
items, which the scheduler sends in the next message.
"""

import json
from bisect import bisect_left
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from supervisor.ipc.delivery_request import DeliveryRequest
from supervisor.ipc.plural import counted

_MOST_CHARS = 16_000
"""Limit of characters in a body, whatever the service accepts."""
MOST_BYTES = {
    "ntfy": 4096,  # a longer message becomes an attachment, or is refused
    "Cisco Webex Teams": 7439,
    "Slack": 3000,  # characters of a section, which ?blocks=yes uses
    "WeChat (WeCom)": 2048,
    "WeCom Bot": 2048,
    "DingTalk": 19_985,
    "Feishu": 19_985,
    "Lark (Feishu)": 19_985,
    "Bark": 3500,  # like the next two, in 4 KiB of JSON
    "Gorush": 3500,
    "Vapid Web Push Notifications": 3500,
    "IRC": 380,
}
"""Limits of a body in bytes, by Apprise's names of services, where the service is stricter than Apprise says."""
_NTFY_REST = 500
"""Characters of the JSON for ntfy in addition to title and body, such as the topic."""
_MARKUP = len("<b></b><br />\r\n")
"""What Apprise adds to a title that becomes part of the body."""
_BRIEF = 80
"""Characters of a body that take precedence over the link: the id of the run and its result."""
_LEAST = 20
"""Characters of a body that take precedence over the title; also the shortest beginning of a line worth showing."""

Fits = Callable[[str, str], bool]
"""Whether a service accepts a title and a body."""
Escape = Callable[[str, bool], str]
"""Escapes a text; the second argument tells whether URLs in it stay links."""


def fits_in(service: Any, convert: Callable[[Any, Any, str], str], plain: Any) -> Fits:
    """Return a function that measures texts as the service receives them.

    Args:
        service: A plug-in of Apprise.
        convert: Apprise's conversion of a text from one format to another.
        plain: Apprise's name of the format of texts.
    """
    resolve = getattr(service, "resolve_format", None)  # earlier releases of Apprise lack it, and know one format
    target = resolve(plain) if resolve else service.notify_format
    to_dialect = getattr(service, "dialect_convert", lambda text, _format: text)
    splits = service.overflow_mode == "split"  # by the notifier's URL
    most_title, most_lines = service.title_maxlen or 0, service.body_max_line_count
    most_bytes = None if splits else MOST_BYTES.get(str(service.service_name))
    # Longer JSON becomes an attachment, which ntfy servers refuse by default. Apprise escapes all but ASCII in it.
    most_json = getattr(service, "ntfy_json_upstream_size_limit", None)
    in_body = most_title <= 0 or getattr(service, "overflow_amalgamate_title", False)

    def fits(title: str, body: str) -> bool:
        whole, spare = convert(plain, target, body), 0
        if in_body:
            whole, spare = f"{convert(plain, target, title)}\n{whole}", _MARKUP
        whole = to_dialect(whole, target)
        return (
            len(body) <= _MOST_CHARS
            and (most_title <= 0 or _length(title) <= most_title)
            and (splits or _length(whole) + spare <= service.body_maxlen)
            and (most_bytes is None or len(whole.encode()) + spare <= most_bytes)
            and (most_json is None or len(json.dumps([title, whole])) + _NTFY_REST <= most_json)
            and not 0 < most_lines < f"{title}\n{body}".count("\n") + 1
        )

    return fits


def _length(text: str) -> int:
    """Return the length in units of UTF-16, because some services count a character like an emoji twice."""
    return len(text.encode("utf-16-le")) // 2


@dataclass(frozen=True)
class Output:
    """The last lines of a run's output, and how many precede them."""

    lines: Sequence[str] = ()
    before: int = 0


@dataclass(frozen=True)
class FittedText:
    """A text that a service accepts, and how many items of the request it has."""

    title: str
    body: str
    items: int = 0


def fitted(request: DeliveryRequest, output: Output, fits: Fits, escape: Escape) -> FittedText:
    """Return the text of a message: its body, its items or the output of its run, and its footer."""
    return _Composer(request, output, fits, escape).composed()


class _Composer:
    """Composes one message: first what is always part of it, then as many lines as fit."""

    def __init__(self, request: DeliveryRequest, output: Output, fits: Fits, escape: Escape) -> None:
        self._items, self._output = request.items, output
        self._fits, self._escape = fits, escape
        title = _cut(request.title, lambda text: fits(escape(text, False), "." * _LEAST))
        self._title = escape(title, False)
        self._body, self._footer = "", request.footer
        self._shorten(request.body if title == request.title else f"{request.title}\n{request.body}".rstrip())

    def composed(self) -> FittedText:
        """Return the text."""
        if self._items:
            count = _most(len(self._items), lambda count: self._holds(self._first_items(count)))
            # A message without an item would be sent for ever.
            rows = self._first_items(count) if count else self._cut_item()
            return FittedText(self._title, self._text(rows), max(1, count))
        count = _most(len(self._output.lines), lambda count: self._holds(self._last_lines(count)))
        rows = self._last_lines(count) if count else self._cut_line()
        return FittedText(self._title, self._text(rows))

    def _shorten(self, body: str) -> None:
        """Cut the body, and the footer from its end, so that they fit; the beginning of the body takes precedence."""
        ends = self._footer.split("\n")
        for kept in range(len(ends), -1, -1):
            self._footer = "\n".join(ends[:kept])
            self._body = _cut(body, self._body_fits)
            if len(self._body) >= min(len(body), _BRIEF) and (not self._items or self._holds(self._first_items(1))):
                break

    def _body_fits(self, body: str) -> bool:
        self._body = body
        return self._holds([])

    def _text(self, rows: list[str]) -> str:
        return "\n\n".join(filter(None, (self._escape(self._body, True), "\n".join(rows), self._footer)))

    def _holds(self, rows: list[str]) -> bool:
        return self._fits(self._title, self._text(rows))

    def _first_items(self, count: int) -> list[str]:
        more = len(self._items) - count
        rows = [self._escape(item, True) for item in self._items[:count]]
        return [*rows, f"… {more} more follow"] if more else rows

    def _cut_item(self) -> list[str]:
        _, *rest = self._first_items(1)
        return [
            self._escape(_cut(self._items[0], lambda text: self._holds([self._escape(text, True), *rest])), True),
            *rest,
        ]

    def _last_lines(self, count: int) -> list[str]:
        lines = self._output.lines
        rows = [self._escape(line, False) for line in lines[len(lines) - count :]]
        more = self._output.before + len(lines) - count
        return [f"… {counted(more, 'line')} more", *rows] if more else rows

    def _cut_line(self) -> list[str]:
        """Return the beginning of the last line, or only how many lines there are; no rows if not even that fits."""
        mark = self._last_lines(0)
        if not mark or not self._holds(mark):
            return []
        *before, _ = self._last_lines(1)
        last = _cut(self._output.lines[-1], lambda text: self._holds([*before, self._escape(text, False)]))
        return [*before, self._escape(last, False)] if len(last) > _LEAST else mark


def _cut(text: str, fits: Callable[[str], bool]) -> str:
    """Return the text, or the longest beginning of it that fits, with "…"; empty if nothing fits."""
    if fits(text):
        return text
    count = _most(len(text), lambda count: fits(f"{text[:count].rstrip()}…"))
    return f"{text[:count].rstrip()}…" if count else ""


def _most(limit: int, fits: Callable[[int], bool]) -> int:
    """Return the largest number up to `limit` that fits; 0 if none does. What fits a larger number fits a smaller."""
    return bisect_left(range(1, limit + 1), True, key=lambda number: not fits(number))
