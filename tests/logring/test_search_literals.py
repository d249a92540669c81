"""Texts that a match must have, and never more than it must have."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from logring.log_search import present, required

re2 = pytest.importorskip("re2", reason="needs google-re2")


@pytest.mark.parametrize(
    ("pattern", "texts"),
    [
        ("timeout", ((b"timeout",),)),
        ("[a-z]+ing [0-9]+", ((b"ing ",),)),
        ("panic|fatal", ((b"panic",), (b"fatal",))),
        ("job.*took.*hours", ((b"hours", b"took", b"job"),)),
        ("^never$", ((b"never",),)),
        ("(foo|bar)quux", ((b"quux",),)),
        (r"a\.b\.c", ((b"a.b.c",),)),
        ("colou?r", ((b"colo",),)),
        ("abcd*ef", ((b"abc",),)),
        ("abcd+efg", ((b"abcd", b"efg"),)),
        ("abcd{0,3}efg", ((b"abc", b"efg"),)),
        ("abcd{2}efg", ((b"abcd", b"efg"),)),
        ("schön", (("schön".encode(),),)),
        ("schö*nes", ((b"sch", b"nes"),)),
        (r"\bword\b", ((b"word",),)),
        ("[[:alpha:]]]abc", ((b"]abc",),)),
        ("[]x]abc", ((b"abc",),)),
        ("abc|", ()),
        ("ab", ()),
        ("(?i)timeout", ()),
        (r"\Qa.b.c\E", ()),
        (r"abc\x61", ()),
        (r"abc\pN", ()),
        ("(abc)?", ()),
        ("abc|def|ghi", ()),
    ],
)
def test_required_texts(pattern: str, texts: tuple[tuple[bytes, ...], ...]) -> None:
    """Required texts are listed longest first; an alternative without any means that nothing is required."""
    assert required(pattern) == texts


PIECES = st.sampled_from(
    [
        "abc",
        "abd",
        "a",
        "é",
        "x*",
        "b?",
        "c+",
        "d{2}",
        "e{0,1}",
        "f{,2}",
        "{",
        "}",
        "(abc|d)",
        "(?:abc)*",
        "(abc)+",
        "|",
        "[abc]",
        "[^abc]",
        "[]a]",
        "[[:digit:]]",
        r"\.",
        r"\d",
        r"\(",
        r"\x61",
        r"\n",
        ".",
        "^",
        "$",
        "+?",
        "*?",
        r"[\]a]",
        "-",
    ]
)
TEXTS = st.lists(
    st.sampled_from(["abc", "abd", "a", "é", "x", "b", "c", "d", "e", "{,2}", "f", "(", "5", "]", "-", " "])
)


@settings(max_examples=300, deadline=None)
@given(pieces=st.lists(PIECES, max_size=8), text=TEXTS)
def test_matches_have_the_required_texts(pieces: list[str], text: list[str]) -> None:
    """Every match of RE2 has the required texts."""
    pattern = "".join(pieces)
    options = re2.Options()
    options.log_errors = False
    try:
        compiled = re2.compile(pattern, options)
    except re2.error:
        return
    line = "".join(text).encode()
    if compiled.search(line):
        assert present(required(pattern), line, 0, len(line))
