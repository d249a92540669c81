"""Keeping chat services from reading what a run printed as markup: mentions of everybody, links, formatting.

Messages go to Apprise as plain text. It escapes them where it knows that the service reads markup, and not where a
service reads Markdown in what Apprise counts as plain text; no version of it takes mentions out.
"""

import re
from urllib.parse import parse_qs, urlsplit

_READ_MARKDOWN = frozenset({"Discord", "Guilded", "Mattermost", "Zulip"})
"""Services, by Apprise's names, that read plain text as Markdown."""
_READ_MENTIONS = _READ_MARKDOWN | {"Google Chat", "Revolt", "Rocket.Chat", "Slack"}
_NOTHING = "\N{ZERO WIDTH SPACE}"
"""Between a sign and what follows it: no service takes them for one word then, whatever it unescapes before."""

_MENTION = re.compile(r"@(\S)")
_REFERENCE = re.compile(r"<([!#@])")
"""Of Slack: <!channel>, <#C024BE7LR>."""
_SCHEME = re.compile(r"://")
_URL = re.compile(r"(https?://\S+)")
_SPECIAL = re.compile(r"([\\`*_~|<>\[\]()#:])")
_FIRST = re.compile(r"^([ \t]*)([-+=])", re.MULTILINE)
_POINT = re.compile(r"(^[ \t]*\d+|\bwww)\.", re.MULTILINE)


def escaped(text: str, service: str, url: str, *, links: bool = False) -> str:
    """`text` as the service shows it literally.

    Args:
        text: plain text.
        service: Apprise's name of the service.
        url: with which it is reached; may ask for a format.
        links: whether addresses in the text stay links: where the text is ours.
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
