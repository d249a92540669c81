"""Secrets in output are replaced before anybody can read them.

A secret of several lines counts line by line, so no decision ever has to wait for the next line; only the end of an
unfinished line that could begin a secret is held back until more of it comes, also when it is one already and could
become a longer one.
"""

from collections.abc import Iterable

MIN_SECRET = 6
"""Shorter ones occur by chance in what has nothing to do with them."""
MAX_SECRET = 8192
MASK = b"***"

_MOST_HELD = 3 * MAX_SECRET
_Group = tuple[int, int, int]
"""Where secrets that overlap or touch begin and end, and how many they are."""


class Mask:
    """Replaces secrets in the output of one stream.

    Args:
        secrets: their bytes; of those with several lines each line of at least 6 bytes is a secret.

    Attributes:
        count: how many were replaced.

    Raises:
        ValueError: a secret without any line of 6 to 8192 bytes.
    """

    __slots__ = ("_held", "_secrets", "count")

    def __init__(self, secrets: Iterable[bytes]) -> None:
        found: set[bytes] = set()
        for secret in secrets:
            lines = {line for line in secret.splitlines() if len(line) >= MIN_SECRET}
            if not lines or max(map(len, lines)) > MAX_SECRET:
                raise ValueError(f"a secret needs lines of {MIN_SECRET} to {MAX_SECRET} bytes")
            found |= lines
        self._secrets = sorted(found)
        self._held = b""
        self.count = 0

    def feed(self, data: bytes) -> bytes:
        """What may be shown now of the output so far."""
        text = self._held + data
        groups = self._groups(text)
        cut = self._undecided(text)
        for begin, end, _ in groups:
            if begin < cut < end:  # what is undecided goes together with these
                cut = begin if len(text) - begin <= _MOST_HELD else end
        shown, self._held = text[:cut], text[cut:]
        return self._replaced(shown, [group for group in groups if group[1] <= cut])

    def finish(self) -> bytes:
        """The stream is at its end: what was held back becomes nothing longer."""
        held, self._held = self._held, b""
        return self._replaced(held, self._groups(held))

    @property
    def held(self) -> bytes:
        """The end of the output so far that could begin a secret."""
        return self._held

    def hold(self, held: bytes, count: int) -> None:
        """Go on where another mask held this back, after it had replaced so many."""
        self._held, self.count = held, count

    def clean(self, text: bytes) -> bytes:
        """A text by itself with its secrets replaced."""
        return _masked(text, self._groups(text))

    def _groups(self, text: bytes) -> list[_Group]:
        """The secrets in a text; those that overlap or touch go together."""
        groups: list[_Group] = []
        for begin, end in sorted(span for secret in self._secrets for span in _spans(text, secret)):
            if groups and begin <= groups[-1][1]:
                first, last, count = groups[-1]
                groups[-1] = first, max(last, end), count + 1
            else:
                groups.append((begin, end, 1))
        return groups

    def _replaced(self, text: bytes, groups: list[_Group]) -> bytes:
        self.count += sum(count for _, _, count in groups)
        return _masked(text, groups)

    def _undecided(self, text: bytes) -> int:
        """From where on the end of the text could begin a secret; its length when none could."""
        start = text.rfind(b"\n") + 1
        cut = len(text)
        for secret in self._secrets:
            at = text.find(secret[:1], max(start, len(text) - len(secret) + 1), cut)
            while at >= 0:
                if secret.startswith(text[at:]):
                    cut = at
                    break
                at = text.find(secret[:1], at + 1, cut)
        return cut


def _masked(text: bytes, groups: list[_Group]) -> bytes:
    if not groups:
        return text
    parts: list[bytes] = []
    kept = 0  # all before is done
    for begin, end, _ in groups:
        parts += (text[kept:begin], MASK)
        kept = end
    parts.append(text[kept:])
    return b"".join(parts)


def _spans(text: bytes, secret: bytes) -> list[tuple[int, int]]:
    found = []
    at = text.find(secret)
    while at >= 0:
        found.append((at, at + len(secret)))
        at = text.find(secret, at + 1)
    return found
