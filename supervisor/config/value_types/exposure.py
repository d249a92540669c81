"""The types of values that determine how clients reach the API, and what the public sees."""

import ipaddress
import re
from collections.abc import Collection, Iterator, Mapping
from typing import Any
from urllib.parse import urlsplit

from msgspec import Struct

from supervisor.config.files.positions import KeyPath
from supervisor.config.files.substitute import Substituted
from supervisor.config.problems import InvalidValue
from supervisor.config.value_records import StatusPageTable
from supervisor.config.value_types.listen import check_exposed
from supervisor.config.value_types.values import ListOf, Name, Text, TextOf, parse_parts, parse_table

_HOST = re.compile(r"(\*\.)?[a-z0-9_]([a-z0-9_-]{0,62})(\.[a-z0-9_]([a-z0-9_-]{0,62}))*\.?", re.ASCII)
_BASE_PATH = re.compile(r"(/[A-Za-z0-9._~-]+)+", re.ASCII)
_MAX_HOST = 253


def unsafe(http: Mapping[str, Any]) -> Iterator[tuple[KeyPath, InvalidValue]]:
    """Yield conflicts between the values of ``[http]``, each with its key path."""
    for key, other in (("tls_cert", "tls_key"), ("tls_key", "tls_cert")):
        if key in http and other not in http:
            yield (key,), InvalidValue(f"also needs {other}", show=False)
    if "socket_group" in http and "socket" not in http and "proxy_socket" not in http:
        remedy = "set socket or proxy_socket to a path in a directory that the group can enter"
        yield ("socket_group",), InvalidValue("has no effect: no other user can enter the data directory", remedy)
    if "proxy_socket" in http and http["proxy_socket"] == http.get("socket"):
        yield ("proxy_socket",), InvalidValue("must be another path than socket, whose peers are trusted")
    if "identity" in http and not http.get("behind_proxy"):
        remedy = "add the address of the proxy to behind_proxy"
        yield (
            ("identity",),
            InvalidValue("needs behind_proxy: headers from elsewhere are never believed", remedy, show=False),
        )
    for index, (host, _port) in enumerate(http.get("listen", ())):
        try:
            check_exposed(host, tls="tls_cert" in http, behind_proxy=bool(http.get("behind_proxy")))
        except InvalidValue as err:
            yield ("listen", index), err


class Network(Struct, frozen=True):
    """A network in CIDR notation, or a single address."""

    expected = 'a network such as "10.0.0.0/8" or an address such as "10.1.2.3"'

    def parse(self, value: object, directory: str) -> str:
        """Return the network in CIDR notation."""
        text = Text(limit=100, empty=False, expected=self.expected).parse(value, directory)
        try:
            network = ipaddress.ip_network(text)
        except ValueError as err:
            remedy = None if isinstance(value, Substituted) else str(err)
            raise InvalidValue(f"must be {self.expected}", remedy) from None
        if network.prefixlen == 0:
            raise InvalidValue(
                "would trust every client, and each could claim any address", "name your proxy's address"
            )
        return str(network)


class HostName(Struct, frozen=True):
    """A host name or numeric address, without a port."""

    expected = 'a host name without a port such as "jobs.example.com" or "*.example.com"'

    def parse(self, value: object, directory: str) -> str:
        """Return the host name in lower case."""
        text = Text(limit=_MAX_HOST, empty=False, expected=self.expected).parse(value, directory).lower()
        try:
            return str(ipaddress.ip_address(text.removeprefix("[").removesuffix("]")))
        except ValueError:
            if not _HOST.fullmatch(text):
                raise InvalidValue(f"must be {self.expected}") from None
        return text


class BasePath(Struct, frozen=True):
    """A path prefix, with a slash at the beginning and none at the end."""

    expected = 'a path such as "/jobs"'

    def parse(self, value: object, directory: str) -> str:
        """Return the path prefix."""
        text = Text(limit=200, expected=self.expected).parse(value, directory).rstrip("/")
        parts = text.split("/")
        if text and (not _BASE_PATH.fullmatch(text) or "." in parts or ".." in parts):
            raise InvalidValue(f"must be {self.expected}", "letters, digits, dots, underscores, tildes and hyphens")
        return text


class Url(Struct, frozen=True):
    """An http or https address without a query, a fragment or a password."""

    expected = 'an address such as "https://example.com/jobs"'

    def parse(self, value: object, directory: str) -> str:
        """Return the URL."""
        text = Text(limit=1000, empty=False, expected=self.expected).parse(value, directory)
        try:
            parts = urlsplit(text)
            port = parts.port
        except ValueError:
            raise InvalidValue(f"must be {self.expected}") from None
        netloc = parts.netloc
        plain = not (parts.query or parts.fragment or "@" in netloc or "*" in netloc or netloc.endswith(":"))
        if port == 0 or parts.scheme not in ("http", "https") or not parts.hostname or not plain:
            raise InvalidValue(f"must be {self.expected}")
        HostName().parse(parts.hostname, directory)
        BasePath().parse(parts.path, directory)
        return f"{parts.scheme}://{parts.netloc.lower()}{parts.path.rstrip('/')}"


ANY_SITE = "*"
ORIGIN = r"\*|https?://[A-Za-z0-9.-]{1,253}(:[0-9]{1,5})?"
MOST_SECTIONS = 50
SECTION_UNITS = ListOf(Name("the name of a task or service"), 100, empty=False)
_HEADING = Text(limit=100, empty=False)


class Sections(Struct, frozen=True):
    """Headings, each with the tasks and services below it."""

    expected = 'a table such as { Shop = ["web", "api"] }'

    def parse(self, value: object, directory: str) -> tuple[tuple[str, tuple[str, ...]], ...]:
        """Return the headings with their names."""
        if not isinstance(value, dict):
            raise InvalidValue(f"must be {self.expected}")
        if len(value) > MOST_SECTIONS:
            raise InvalidValue(f"must have at most {MOST_SECTIONS} sections, it has {len(value)}", show=False)

        def parse(heading: str, names: object) -> tuple[str, ...]:
            _HEADING.parse(heading, directory)
            return SECTION_UNITS.parse(names, directory)

        return tuple(parse_parts(value.items(), parse).items())


PAGE_KEYS: Mapping[str, Any] = {
    "title": Text(limit=100, empty=False),
    "text": Text(limit=2000),
    "sections": Sections(),
    "embed": ListOf(TextOf('an origin such as "https://example.com", or "*" for any site', re.compile(ORIGIN)), 16),
}
PAGE_REQUIRED: Collection[str] = ("title",)


class StatusPageType(Struct, frozen=True):
    """The table ``[http.status_page]``."""

    expected = 'a table such as { title = "Status of the shop" }'

    def parse(self, value: object, directory: str) -> StatusPageTable:
        """Return the contents of the page."""
        if not isinstance(value, dict):
            raise InvalidValue(f"must be {self.expected}")
        parsed, faults = parse_table(value, PAGE_KEYS, directory)
        for name in PAGE_REQUIRED:
            if name not in value:
                faults.add(f"has no {name}", f"add {name} = …")
        faults.check()
        page = StatusPageTable(**parsed)
        seen: set[str] = set()
        for heading, names in page.sections:
            for name in names:
                if name in seen:
                    raise InvalidValue(
                        f'has "{name}" in two sections', f"remove it from one, such as {heading}", show=False
                    )
                seen.add(name)
        if ANY_SITE in page.embed and len(page.embed) > 1:
            raise InvalidValue(
                'has "*" beside other sites in embed', 'write embed = ["*"], or name the sites', show=False
            )
        return page
