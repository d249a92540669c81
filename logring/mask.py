"""Masking: secrets in output are replaced before anybody can read them.

A secret of several lines is matched line by line, so no decision has to wait for the next line. If the end of an
unfinished line could begin a secret, that end is held back until more of the line arrives. A complete secret is also
held back while it could become a longer one.
"""

from collections.abc import Iterable
from dataclasses import dataclass

from logring.state_json import tagged

MIN_SECRET = 6
"""Shorter secrets would match unrelated text by chance."""
MAX_SECRET = 8192
MASK = b"***"

_Span = tuple[int, int]


@tagged("Mask", "_begun=begun _held=held _secrets=secrets count")
@dataclass(frozen=True)
class MaskState:
    """A mask in a handover."""

    secrets: list[bytes]
    held: bytes
    begun: int
    count: int


class Mask:
    """Replaces secrets in the output of one stream.

    Args:
        secrets: the secrets. In a secret of several lines, each line of at least 6 bytes counts as a secret.

    Attributes:
        count: number of replacements.

    Raises:
        ValueError: a secret without any line of 6 to 8192 bytes.
    """

    __slots__ = ("_begun", "_held", "_secrets", "count")

    def __init__(self, secrets: Iterable[bytes]) -> None:
        all_secrets: set[bytes] = set()
        for secret in secrets:
            lines = {line for line in secret.splitlines() if len(line) >= MIN_SECRET}
            if not lines or max(map(len, lines)) > MAX_SECRET:
                raise ValueError(f"a secret needs lines of {MIN_SECRET} to {MAX_SECRET} bytes")
            all_secrets |= lines
        self._secrets = sorted(all_secrets)
        self._held = b""
        self._begun = 0  # length of the prefix of the held output whose mask was already returned
        self.count = 0

    def state(self) -> MaskState:
        """Return the state for another program."""
        return MaskState(self._secrets, self._held, self._begun, self.count)

    @classmethod
    def from_state(cls, state: MaskState) -> "Mask":
        """Return the mask with this state."""
        self = cls(state.secrets)
        self._held, self._begun, self.count = state.held, state.begun, state.count
        return self

    def feed(self, data: bytes) -> bytes:
        """Return the output that may be shown now."""
        text = self._held + data
        return self._show(text, self._undecided(text))

    def finish(self) -> bytes:
        """Return the held output at the end of the stream: it can no longer become a longer secret."""
        return self._show(self._held, len(self._held))

    def _show(self, text: bytes, cut: int) -> bytes:
        """Return the output before `cut`, with masks for secrets that begin before it; hold back the rest."""
        parts: list[bytes] = []
        spans = self._secret_spans(text)
        self.count += sum(start < cut for start, _ in spans)
        handled = 0  # the text before this position has been handled
        for start, end in _groups([(0, self._begun), *spans] if self._begun else spans):
            if start == 0 and self._begun:
                handled = end
            elif start < cut:
                parts += (text[handled:start], MASK)
                handled = end
        parts.append(text[handled:cut])
        self._held, self._begun = text[cut:], max(0, handled - cut)
        return b"".join(parts)

    @property
    def possible_secret(self) -> bytes:
        """The held output. A newline in it ends the part whose mask was already returned."""
        return b"\n".join((self._held[: self._begun], self._held[self._begun :])) if self._begun else self._held

    def hold(self, output: bytes, count: int) -> None:
        """Continue where another mask stopped, with its `output` output and its `count`."""
        self._begun = max(0, output.find(b"\n"))
        self._held, self.count = output.replace(b"\n", b""), count

    def another(self) -> "Mask":
        """Return a new mask with the same secrets, for the start of another stream."""
        return Mask(self._secrets)

    def clean(self, text: bytes) -> bytes:
        """Return one text with its secrets replaced; the state of the stream is not used."""
        parts: list[bytes] = []
        handled = 0
        for start, end in _groups(self._secret_spans(text)):
            parts += (text[handled:start], MASK)
            handled = end
        return b"".join((*parts, text[handled:]))

    def _secret_spans(self, text: bytes) -> list[_Span]:
        """Return the spans of all secrets in a text, sorted; they may overlap."""
        return sorted(span for secret in self._secrets for span in _spans(text, secret))

    def _undecided(self, text: bytes) -> int:
        """Return the first position from which the end of the text could begin a secret; its length if none could."""
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


def _groups(spans: list[_Span]) -> list[_Span]:
    """Merge overlapping and adjacent spans."""
    groups: list[_Span] = []
    for start, end in spans:
        if groups and start <= groups[-1][1]:
            groups[-1] = groups[-1][0], max(groups[-1][1], end)
        else:
            groups.append((start, end))
    return groups


def _spans(text: bytes, secret: bytes) -> list[_Span]:
    spans = []
    at = text.find(secret)
    while at >= 0:
        spans.append((at, at + len(secret)))
        at = text.find(secret, at + 1)
    return spans
