"""The language of pages and of the program's texts: few long sentences, and few phrases that make readers stop."""

import ast
import re
from collections.abc import Iterable, Iterator
from pathlib import Path

import docutils.nodes
import pytest

from tests.docs.blocks import parsed
from tests.support.paths import ROOT

PAGES = [*sorted(ROOT.glob("*.rst")), *sorted((ROOT / "docs").rglob("*.rst"))]
ROOMS = ("api", "deploy", "logring", "store", "supervisor")
MOST_WORDS = 30
MOST = 0.01
"""The share of sentences that may be long or a riddle."""
_AFTER_WHAT = (
    "is|has|was|had|they|it|a|the|runs|stands|comes|goes|does|can|cannot|may|ends|starts|nobody|somebody|people"
)
_RIDDLE = re.compile(
    rf"\bwhoever\b|\bwhat (?:{_AFTER_WHAT})\b|\b(?:no|some)body\b|\bof whom\b|\bthose (?:of|that|who|which)\b"
    r"|\b(?:is|are) told\b|\btells? people\b|\bhas to go\b|\bgiven up\b|\bgives up on\b|\bfor ever\b|\bfrom there on\b"
    r"|\bis over\b|\bbecomes of\b|\bcomes? of\b|\bin force\b|\bone (?:that|who|whose)\b|\b(?:to|by) who\b",
    re.IGNORECASE,
)


def sentences(text: str) -> Iterator[str]:
    """Yield the sentences of three words and more."""
    for one in re.split(r"(?<=[.!?])\s+|\n\s*\n|\n\s*[-*] ", text):
        if len(one.split()) > 2:
            yield " ".join(one.split())


def paragraphs(page: Path) -> Iterator[str]:
    """Yield the paragraphs of a page, with X for each literal."""
    for paragraph in parsed(page).findall(docutils.nodes.paragraph):
        yield "".join("X" if isinstance(part, docutils.nodes.literal) else part.astext() for part in paragraph.children)


def strings(room: str) -> Iterator[str]:
    """Yield docstrings and messages of a room, with X for each inserted value."""
    for file in (ROOT / room).rglob("*.py"):
        for node in ast.walk(ast.parse(file.read_text())):
            if isinstance(node, ast.JoinedStr):
                yield "".join(str(part.value) if isinstance(part, ast.Constant) else "X" for part in node.values)
            elif isinstance(node, ast.Constant) and isinstance(node.value, str):
                yield re.sub(r"``[^`]*``|`[^`]*`", "X", node.value)


def found(texts: Iterable[str]) -> tuple[int, list[str], list[str]]:
    """Return the number of sentences, the long ones, and the ones with a riddle."""
    every = [sentence for text in texts for sentence in sentences(text)]
    long = [sentence for sentence in every if len(re.findall(r"[\w'-]+", sentence)) > MOST_WORDS]
    return len(every), long, [sentence for sentence in every if _RIDDLE.search(sentence)]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_sentences_of_a_page(page: Path) -> None:
    """At most one sentence in a hundred has more than 30 words, and at most one has a riddle such as "what is"."""
    count, long, riddles = found(paragraphs(page))
    assert len(long) <= MOST * count, "\n".join(long)
    assert len(riddles) <= MOST * count, "\n".join(riddles)


@pytest.mark.parametrize("room", ROOMS)
def test_texts_of_the_program(room: str) -> None:
    """At most one sentence in a hundred of a package's docstrings and messages has a riddle."""
    count, _, riddles = found(strings(room))
    assert len(riddles) <= MOST * count, "\n".join(riddles)
