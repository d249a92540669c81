"""No secret is ever shown, however its bytes arrive."""

import itertools
import re

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from logring.mask import MASK, Mask

SECRETS = [b"hunter2!", b"hunter2!-more", b"aaaaaa", b"ababab", b"abcdefgh", b"efghijkl", b"\xff\xfe\xfd\xfc\xfb\xfa"]


def test_secret_is_replaced() -> None:
    """A secret is replaced by ***, and adjacent secrets by one mask, anywhere in a line."""
    mask = Mask([b"hunter2!"])
    assert mask.feed(b"login hunter2! and hunter2!hunter2!\n") == b"login *** and ***\n"
    assert mask.count == 3


def test_secret_across_chunks() -> None:
    """The beginning of a secret is held back until more text decides."""
    mask = Mask([b"hunter2!"])
    assert mask.feed(b"pass: hunt") == b"pass: "
    assert mask.feed(b"er") == b""
    assert mask.feed(b"2!\n") == b"***\n"
    assert mask.feed(b"hunt") == b""
    assert mask.feed(b"ing\n") == b"hunting\n"
    assert mask.feed(b"hunter2") == b""
    assert mask.finish() == b"hunter2"
    assert mask.finish() == b""
    assert mask.count == 1


def test_line_end_decides() -> None:
    """A secret cannot continue in the next line, so a line is never held back after its end."""
    assert Mask([b"hunter2!"]).feed(b"hunt\n") == b"hunt\n"


def test_multiline_secret() -> None:
    """Each line of a key is a secret, except lines too short to distinguish from other text."""
    mask = Mask([b"-----BEGIN-----\nMIIEpAIBAAKC\r\nabc\n-----END-----\n"])
    assert mask.feed(b"x -----BEGIN-----\nMIIEpAIBAAKC\nabc\n") == b"x ***\n***\nabc\n"


def test_overlapping_secrets() -> None:
    """Overlapping secrets are replaced completely."""
    assert Mask([b"abcdefgh", b"efghijkl"]).feed(b"<abcdefghijkl>") == b"<***>"
    assert Mask([b"ababab"]).feed(b"<ababababab>") == b"<***>"


@pytest.mark.parametrize(
    "pieces",
    [
        [b"<abcdef", b"ghij>"],  # one secret begins with the other
        [b"<postgres://u:abcdef", b"@h/db>"],  # ... contains the other
        [b"<uvwxyzab", b"cdef>"],  # ... begins with the other's end
        [b"<", *(bytes([byte]) for byte in b"postgres://u:abcdef@h/db"), b">"],
    ],
)
def test_longer_secret_across_chunks(pieces: list[bytes]) -> None:
    """A secret that could become a longer one is held back, so nothing of the longer one is shown either."""
    mask = Mask([b"abcdef", b"abcdefghij", b"postgres://u:abcdef@h/db", b"uvwxyzab"])
    assert b"".join(map(mask.feed, pieces)) + mask.finish() == b"<***>"


def test_longer_secret_does_not_follow() -> None:
    """If the longer secret does not follow, the shorter one is replaced."""
    mask = Mask([b"abcdef", b"abcdefghij"])
    assert mask.feed(b"<abcdef") == b"<"
    assert mask.feed(b"gh>") == b"***gh>"
    assert (mask.feed(b"abcdef"), mask.finish()) == (b"", b"***")
    assert mask.count == 2


def test_secret_overlaps_itself() -> None:
    """Text that was replaced is not scanned again, however long it is."""
    mask = Mask([b"000000"])
    shown = b""
    for _ in range(1000):
        shown += mask.feed(b"0")
        assert len(mask.possible_secret) <= 6
        other = Mask([b"000000"])
        other.hold(mask.possible_secret, mask.count)
        mask = other
    assert shown + mask.feed(b"1") + mask.finish() == b"***1"
    assert mask.count == 995


@pytest.mark.parametrize("secret", [b"", b"short", b"a\nb\nc\n", b"x" * 8193])
def test_unusable_secrets(secret: bytes) -> None:
    """Texts that are too short to distinguish, or longer than any secret, are refused."""
    with pytest.raises(ValueError, match="6 to 8192"):
        Mask([secret])


PIECES = st.lists(
    st.one_of(
        st.sampled_from([secret[:cut] for secret in SECRETS for cut in range(1, len(secret) + 1)]),
        st.sampled_from([b"\n", b"x", b"a", b"ab"]),
        st.binary(max_size=8).map(lambda data: data.replace(b"*", b"+")),  # a printed mask would be ambiguous
    ),
    max_size=20,
)


@settings(max_examples=300, deadline=None)
@given(
    pieces=PIECES, cuts=st.lists(st.integers(0, 200), max_size=12), known=st.sets(st.sampled_from(SECRETS), min_size=1)
)
def test_any_chunks(pieces: list[bytes], cuts: list[int], known: set[bytes]) -> None:
    """In any chunks, the visible text contains no secret and otherwise equals the printed text."""
    whole = b"".join(pieces)
    mask = Mask(known)
    shown = b""
    edges = sorted({0, len(whole), *(cut for cut in cuts if cut < len(whole))})
    for start, end in itertools.pairwise(edges):
        shown += mask.feed(whole[start:end])
    shown += mask.finish()
    assert not any(secret in shown for secret in known)
    position = 0
    for part in shown.split(MASK):
        at = whole.find(part, position)
        assert at >= 0
        position = at + len(part)
    # Adjacent secrets may be replaced separately or together, depending on the chunks.
    at_once = Mask(known)
    whole = at_once.feed(whole) + at_once.finish()
    assert re.sub(rb"(\*{3})+", b"*", shown) == re.sub(rb"(\*{3})+", b"*", whole)
