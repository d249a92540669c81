"""Secrets in output are replaced before anybody can read them.

A secret of several lines counts line by line, so no decision ever has to wait for the next line; only the end of an
unfinished line that could begin a secret is held back until more of it comes.
"""

from collections.abc import Iterable

MIN_SECRET = 6
"""Shorter ones occur by chance in what has nothing to do with them."""
MAX_SECRET = 8192
MASK = b"***"


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
        text, done, count = self._replace(self._held + data)
        self.count += count
        cut = self._undecided(text, done)
        self._held = text[cut:]
        return text[:cut]

    def finish(self) -> bytes:
        """The stream is at its end: what was held back was no secret."""
        held, self._held = self._held, b""
        return held

    @property
    def held(self) -> bytes:
        """The end of the output so far that could begin a secret."""
        return self._held

    def hold(self, held: bytes, count: int) -> None:
        """Go on where another mask held this back, after it had replaced so many."""
        self._held, self.count = held, count

    def clean(self, text: bytes) -> bytes:
        """A text by itself with its secrets replaced."""
        return self._replace(text)[0]

    def _replace(self, text: bytes) -> tuple[bytes, int, int]:
        """The text with its secrets replaced, where the last of them ends, and how many they are.

        Overlapping ones go together.
        """
        spans = sorted(span for secret in self._secrets for span in _spans(text, secret))
        if not spans:
            return text, 0, 0
        parts: list[bytes] = []
        kept = 0  # all before is done
        for begin, end in spans:
            if begin >= kept and (begin > kept or not parts or parts[-1] is not MASK):
                parts += (text[kept:begin], MASK)
            kept = max(kept, end)
        done = sum(map(len, parts))
        parts.append(text[kept:])
        return b"".join(parts), done, len(spans)

    def _undecided(self, text: bytes, done: int) -> int:
        """From where on the end of the text could begin a secret; its length when none could."""
        start = max(done, text.rfind(b"\n") + 1)
        cut = len(text)
        for secret in self._secrets:
            at = text.find(secret[:1], max(start, len(text) - len(secret) + 1), cut)
            while at >= 0:
                if secret.startswith(text[at:]):
                    cut = at
                    break
                at = text.find(secret[:1], at + 1, cut)
        return cut


def _spans(text: bytes, secret: bytes) -> list[tuple[int, int]]:
    found = []
    at = text.find(secret)
    while at >= 0:
        found.append((at, at + len(secret)))
        at = text.find(secret, at + 1)
    return found
