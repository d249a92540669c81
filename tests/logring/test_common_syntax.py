"""Both engines of regular expressions accept the same patterns and find the same matches."""

import re
import string
from collections.abc import Iterator
from typing import NamedTuple

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from logring.common_syntax import BadPattern, literal, translated

# ruff: noqa: RUF001 - letters of other alphabets are the point
re2 = pytest.importorskip("re2", reason="needs google-re2, the other engine")

COMMON = (
    # Literals and escape sequences
    *("", "a", "ab", "error", "é", "€", "😀", r"\.", r"\*", r"\\", r"\-", r"\_", r"a\.b", "]", "}", "a{", "{", "a{x}"),
    *("a{,2}", "a{01}", "-", "&&", "~~", "#", " ", r"\x41", r"\x{e9}", r"\x{1F600}", r"\101", r"\12", r"\0", r"\08"),
    *(r"\t", r"\r", r"\f", r"\v", r"\a", r"\Qa.b\E", r"\Q[\E+", r"a\Q.", r"\Q", r"\Qab\E*", "\x00", "=", "a,b", "/"),
    # Any character
    *(".", "..", "a.b", ".*", ".+b", "^.$", "^..$", "(?s).", "(?s)a.b", "(?s:a.)b", "(?-s).", ".*?b", ".{2,3}"),
    # Classes
    *("[a]", "[ab]", "[a-z]", "[^a]", "[^a-z]", "[a-zA-Z0-9_]", "[]a]", "[^]a]", "[a-]", "[-a]", "[a-b-c]", "[--a]"),
    *("[é]", "[^é]", "[à-ü]", "[€😀]", r"[\]]", r"[\\]", r"[\-a]", r"[a\-z]", r"[\x41-\x43]", r"[\t ]", "[.*]", "[^^]"),
    *(
        r"\d",
        r"\D",
        r"\w",
        r"\W",
        r"\s",
        r"\S",
        r"\d+",
        r"\w+",
        r"^\W$",
        r"^\w+$",
        r"^\S+$",
        r"\s\S",
        r"[\d]",
        r"[^\d]",
    ),
    *(r"[\w-]", r"[^\w]", r"[\s\d]", r"[\D]", r"[^\D]", r"[\S]", r"[^\S]", r"[\W]", r"[\d-z]", r"[\w-a]", r"[a\W]"),
    *("[[:alpha:]]", "[[:digit:]]+", "[[:^digit:]]", "[[:space:]]", "[^[:space:]]", "[[:punct:]]", "[[:upper:]]"),
    *("[[:lower:]]", "[[:xdigit:]]{2}", "[[:word:]]", "[[:alnum:]_]", "[[:blank:]]", "[[:cntrl:]]", "[[:graph:]]"),
    *(
        "[[:print:]]",
        "[[:ascii:]]",
        "[[:^ascii:]]",
        "[[:alpha:][:digit:]]",
        "[[:a]",
        "[&&a]",
        "[a~~b]",
        "[[a]",
        "[a||b]",
    ),
    # Alternatives and groups
    *("a|b", "a|ab", "ab|a", "abc|abd|b", "|a", "a|", "(a)", "(a|b)c", "(?:a|b)+", "(?P<name>a)b", "(?<name>a)b", "()"),
    *("((a)(b))", "(a(b(1)?)?)?", "(a|ab)(1|b1)", "a(|b)1", "(?:)", "(?:a)(?:b)", "^(?:a|b)$", "^(a|b|ab)$", "(^a|b$)"),
    # Repetitions
    *(
        "a*",
        "a+",
        "a?",
        "a*?",
        "a+?",
        "a??",
        "a{2}",
        "a{2,}",
        "a{1,2}",
        "a{1,2}?",
        "a{0}",
        "a{0,1}b",
        "(ab)+",
        "(ab){2}",
    ),
    *("(a|b)*1", "(a+)+b", "(a*)*b", "(a|b?)+1", "[ab]+?1", r"(\w+\s?)+$", "(?:a{2}){2}", "a{1000}", "^a*$", "^(ab)*$"),
    *("x*y*", "^*", "(?:^a)*b", r"\b*a", "(|a)*", "(|a)+b", "(a??)+b"),
    # Anchors
    *(
        "^",
        "$",
        "^$",
        "^a",
        "a$",
        "^a$",
        "^ab$",
        "b^a",
        "a$b",
        r"\Aa",
        r"a\z",
        r"\A\z",
        r"\ba",
        r"a\b",
        r"\bab\b",
        r"\b",
    ),
    *(r"\b1", r"1\b", r"é\b", r"\bé", "(?m)^b", "(?m)a$", "(?m)^$", "(?m:^)b", "(a|^)b", "(a$|b)", r"\b.\b"),
    # Case
    *("(?i)a", "(?i)AB", "(?i)é", "(?i)É", "(?i)[a-z]", "(?i)[^a]", "(?i)[^a-z]", "(?i:a)b", "a(?i:b)", "(?i)a(?-i)b"),
    *("a(?i)b|A", "(?i)k", "(?i)s", "(?i)[k]", "(?i)[^k]", "(?i)i", "(?i)[i]", "(?i)[^i]", "(?i)ı", "(?i)[ı]", "(?i)İ"),
    *(
        "(?i)σ",
        "(?i)[Σ]",
        "(?i)ß",
        r"(?i)\w",
        r"(?i)\W",
        r"(?i)[\W]",
        r"(?i)[^\w]",
        "(?i)[[:upper:]]",
        "(?i)[[:^upper:]]",
    ),
    *(
        "(?is)a.b",
        "(?ims)^a.b$",
        "(?i-s)a.",
        "(?i)error|WARN",
        r"(?i)\x41",
        "(?i)[é-ü]",
        "(?)",
        "(?:(?i)a)b",
        "((?i)a|b)1",
    ),
    # As in logs
    *(r"ERROR|FATAL", r"^\[?(error|warn)\]?", r"\d{4}-\d{2}-\d{2}", r"status=[45]\d\d", r"took \d+(\.\d+)?ms"),
    *(
        r"^(ERROR|fatal):",
        r"listening on port [0-9]+",
        r"\b\d{1,3}(?:\.\d{1,3}){3}\b",
        r'"level":\s*"error"',
        r"id=\w{8}",
    ),
)
INVALID = (
    *(
        "(",
        ")",
        "(a",
        "a)",
        "[",
        "[a",
        "[]",
        "[^]",
        "[z-a]",
        "[a--]",
        r"[a-\d]",
        "[[:foo:]]",
        "[[:a]b:]",
        "[[:Alpha:]]",
        "[[:alpha:]",
        "*",
        "+a",
        "?",
    ),
    *("a**", "a*+", "a++", "a?+", "a*?*", "a*??", "a{2}{3}", "a{2}+", "{2}", "|*", "(*)", "a|*b", "(?:+)", "a{1001}"),
    *(
        "a{2,1}",
        "(a{100}){100}",
        "(?=a)",
        "(?!a)",
        "(?<=a)b",
        "(?<!a)b",
        "(?>a)",
        "(?(1)a|b)",
        "(?#a)",
        "(?P=a)",
        "(?P>a)",
    ),
    *(
        r"(a)\1",
        r"\9",
        r"\8",
        r"\Z",
        r"\h",
        r"\E",
        r"\G",
        r"\K",
        r"\R",
        r"\x",
        r"\x1",
        r"\x{}",
        r"\x{110000}",
        "\\é",
        "\\",
    ),
    *(
        "(?a)b",
        "(?x)a",
        "(?L)a",
        "(?i",
        "(?i:a",
        "(?i-)a",
        "(?-)",
        "(?i--s)",
        "(?P<>a)",
        "(?P<a b>x)",
        "(?P<a",
        "(?",
        "(?P",
    ),
    *(r"[\b]", r"[\A]", r"[\Q]", r"[\z]", "(?i)*", r"\Q\E*", "a|b)", "((a)", "[a\\", "a(?"),
)
ONLY_RE2 = (r"\pN", r"\p{Greek}", r"\PL", r"[\pN]", r"\C", r"\B", "(?U)a*", "(?U:a)", "(?-U)a", "(?P<é>a)")
TEXTS = (
    *(
        "",
        "a",
        "b",
        "ab",
        "aab",
        "abb",
        "ba",
        "a1",
        "ab1",
        "abab1",
        "AB",
        "A",
        "1",
        "12",
        "_",
        " ",
        "a b",
        "a.b",
        "a-b",
    ),
    *(
        "é",
        "É",
        "aé",
        "é1",
        "€",
        "😀",
        "ü",
        "k",
        "K",
        "\u212a",
        "s",
        "ſ",
        "S",
        "i",
        "I",
        "ı",
        "İ",
        "σ",
        "ς",
        "Σ",
        "ß",
        "ẞ",
    ),
    *(
        "\n",
        "a\n",
        "\na",
        "a\nb",
        "ab\n\nab",
        "b\na",
        "a\r",
        "\t",
        "\x0b",
        "\x00",
        "a\x0cb",
        "]",
        "[",
        "}",
        "{",
        "a{,2}",
    ),
    *(
        "a{01}",
        "a{x}",
        "^",
        "$",
        "\\",
        "-",
        "&",
        "~",
        "#",
        "|",
        "*",
        ".",
        "aaaa",
        "aaab",
        "x y",
        "xyz",
        "a," * 9,
        "=",
        "/",
    ),
    *(
        "2026-11-27 ERROR: status=503",
        "fatal: no disk",
        "[warn] took 12.5ms",
        "listening on port 8080",
        "127.0.0.1:7464",
    ),
)
ALL_TEXTS = (
    *(text.encode() for text in TEXTS),
    *(
        b"\xff",
        b"a\xffb",
        b"\xc3",
        b"\xc3a",
        b"\xe2\x82",
        b"a\xe2\x82b",
        b"\x80",
        b"\xc3\xa9\xff\xc3\xa9",
        b"\xffab\n\xff",
    ),
)


class Found(NamedTuple):
    """Where the first match begins, and whether the whole text matches."""

    start: int | None
    whole: bool


def by_re2(pattern: str, text: bytes, *, lines: bool, ignore_case: bool) -> Found:
    options = re2.Options()
    options.log_errors = False
    options.case_sensitive = not ignore_case
    options.never_nl = lines
    compiled = re2.compile(f"(?m){pattern}" if lines else pattern, options)
    match = compiled.search(text)
    return Found(match and match.start(), not lines and compiled.fullmatch(text) is not None)


def by_python(pattern: str, text: bytes, *, lines: bool, ignore_case: bool) -> Found:
    compiled = re.compile(translated(pattern, lines=lines, ignore_case=ignore_case))
    decoded = text.decode(errors="surrogateescape")
    match = compiled.search(decoded)
    start = None if match is None else len(decoded[: match.start()].encode(errors="surrogateescape"))
    return Found(start, not lines and compiled.fullmatch(decoded) is not None)


def differences(pattern: str, text: bytes) -> Iterator[tuple[bool, bool, Found, Found]]:
    for lines in (False, True):
        for ignore_case in (False, True):
            theirs = by_re2(pattern, text, lines=lines, ignore_case=ignore_case)
            ours = by_python(pattern, text, lines=lines, ignore_case=ignore_case)
            if theirs != ours:
                yield lines, ignore_case, theirs, ours


def test_the_corpus_is_large() -> None:
    """The corpus has at least 200 patterns, each once."""
    assert len(set(COMMON)) == len(COMMON) >= 200


@pytest.mark.parametrize("pattern", COMMON)
def test_both_engines_find_the_same(pattern: str) -> None:
    """Both engines find matches in the same texts and places, in lines and in whole texts, with and without case."""
    assert {text: [*differences(pattern, text)] for text in ALL_TEXTS if [*differences(pattern, text)]} == {}


@pytest.mark.parametrize("pattern", INVALID)
def test_both_engines_reject_the_same(pattern: str) -> None:
    """Without google-re2, a pattern that RE2 rejects is rejected too; the message names the place."""
    options = re2.Options()
    options.log_errors = False
    with pytest.raises(re2.error):
        re2.compile(pattern, options)
    with pytest.raises(BadPattern, match=r"position [0-9]+"):
        translated(pattern, lines=False)


@pytest.mark.parametrize("pattern", ONLY_RE2)
def test_what_only_re2_has_is_rejected(pattern: str) -> None:
    """A pattern that needs RE2 is rejected without it; the message names the construct or its rule."""
    re2.compile(pattern)
    with pytest.raises(BadPattern, match=r"needs google-re2, which is not installed|must be ASCII letters"):
        translated(pattern, lines=False)


@pytest.mark.parametrize(
    ("pattern", "message"),
    [
        (r"a(?=b)", "(?=, a lookahead, at position 1 is not supported"),
        (r"(a)\1", r"\1, a backreference, at position 3 is not supported"),
        (r"ab\pL", r"\p at position 2 needs google-re2, which is not installed"),
        ("a**", "* at position 2 follows another repetition"),
        ("(a|b", "( at position 0 is not closed"),
        ("[z-a]", "z-a at position 1 has its end before its start"),
        ("(" * 101 + ")" * 101, "( at position 100 is nested more than 100 times"),
    ],
)
def test_errors_name_construct_and_position(pattern: str, message: str) -> None:
    """An error names the construct and its position in the pattern."""
    with pytest.raises(BadPattern) as caught:
        translated(pattern, lines=False)
    assert str(caught.value) == message


def test_escape_sequences_are_the_same() -> None:
    """Each escape sequence of an ASCII character is valid in both engines or in neither, alone and in a class."""
    options = re2.Options()
    options.log_errors = False
    for char in string.printable:
        for pattern in (f"\\{char}", f"[\\{char}]"):
            if char in "BCpP":
                continue
            try:
                re2.compile(pattern, options)
            except re2.error:
                with pytest.raises(BadPattern):
                    translated(pattern, lines=False)
            else:
                translated(pattern, lines=False)


def test_case_of_all_letters() -> None:
    """Without case, each letter of Unicode equals the same letters in both engines."""
    options = re2.Options()
    options.case_sensitive = False
    letters = [char for code in range(0x80, 0x590) if (char := chr(code)).lower() != char or char.upper() != char]
    text = "\n".join([*string.ascii_letters, *letters])
    for letter in (*string.ascii_letters, *letters):
        theirs = {match.group() for match in re2.compile(letter, options).finditer(text)}
        assert set(re.findall(translated(letter, lines=True, ignore_case=True), text)) == theirs, letter
        assert set(re.findall(translated(f"[{letter}]", lines=True, ignore_case=True), text)) == theirs, letter
        assert set(re.findall(literal(letter, ignore_case=True), text)) == theirs, letter


ATOMS = st.sampled_from([atom for atom in COMMON if 0 < len(atom) < 7 and "(?" not in atom])
EXPRESSIONS = st.recursive(
    ATOMS,
    lambda inner: st.one_of(
        st.lists(inner, min_size=1, max_size=3).map("".join),
        st.tuples(inner, inner).map("(?:{0[0]}|{0[1]})".format),
        st.tuples(inner, st.sampled_from(["*", "+", "?", "*?", "{2}", "{1,3}"])).map("(?:{0[0]}){0[1]}".format),
        st.tuples(st.sampled_from(["i", "s", "-i", "is"]), inner).map("(?{0[0]}:{0[1]})".format),
    ),
    max_leaves=6,
)


@settings(max_examples=300, deadline=None)
@given(pattern=EXPRESSIONS, text=st.lists(st.sampled_from(ALL_TEXTS), max_size=4).map(b"".join))
def test_random_expressions(pattern: str, text: bytes) -> None:
    """Random combinations are valid in both engines or in neither, and find the same."""
    options = re2.Options()
    options.log_errors = False
    try:
        re2.compile(pattern, options)
    except re2.error:
        with pytest.raises(BadPattern):
            translated(pattern, lines=False)
    else:
        assert [*differences(pattern, text)] == []
