"""A reader of Prometheus' text format that is as strict as ``promtool check metrics``."""

import re
from typing import NamedTuple

_NAME = r"[a-zA-Z_:][a-zA-Z0-9_:]*"
_LABEL = r'[a-zA-Z_][a-zA-Z0-9_]*="(?:[^"\\\n]|\\["\\n])*"'
_SAMPLE = re.compile(rf"({_NAME})(?:{{({_LABEL}(?:,{_LABEL})*)}})? (\S+)")
_PAIR = re.compile(r'([a-zA-Z_][a-zA-Z0-9_]*)="((?:[^"\\\n]|\\["\\n])*)"')
_SUFFIXES = {"counter": ("",), "gauge": ("",), "histogram": ("_bucket", "_sum", "_count")}


class Family(NamedTuple):
    kind: str
    samples: dict[tuple[str, frozenset[tuple[str, str]]], float]
    """By full name and labels."""


def parse(text: str) -> dict[str, Family]:
    """All families by name.

    Raises:
        AssertionError: the format does not allow this.
    """
    assert text.endswith("\n")
    families: dict[str, Family] = {}
    helped = current = ""
    for line in text[:-1].split("\n"):
        if line.startswith("# HELP "):
            helped, _, words = line[len("# HELP ") :].partition(" ")
            assert re.fullmatch(_NAME, helped), line
            assert words, f"{helped} has no help text"
            assert helped not in families, f"{helped} comes twice"
        elif line.startswith("# TYPE "):
            current, kind = line[len("# TYPE ") :].split(" ")
            assert current == helped, f"{current} has no help text before its type"
            assert (kind == "counter") == current.endswith("_total"), line
            families[current] = Family(kind, {})
        else:
            _sample(line, current, families[current])
    for name, family in families.items():
        if family.kind == "histogram":
            _histogram(name, family)
    return families


def _histogram(name: str, family: Family) -> None:
    """Buckets grow with their bounds, and the last one is the count."""
    buckets: dict[frozenset[tuple[str, str]], list[tuple[float, float]]] = {}
    for (full, labels), value in family.samples.items():
        if full == f"{name}_bucket":
            bounds = dict(labels)
            bound = float(bounds.pop("le"))
            buckets.setdefault(frozenset(bounds.items()), []).append((bound, value))
    for labels, counts in buckets.items():
        assert counts == sorted(counts), f"{name} {labels}"
        assert [value for _, value in counts] == sorted(value for _, value in counts), f"{name} {labels}"
        assert counts[-1] == (float("inf"), family.samples[f"{name}_count", labels]), f"{name} {labels}"
        assert (f"{name}_sum", labels) in family.samples, f"{name} {labels}"


def _sample(line: str, name: str, family: Family) -> None:
    match = _SAMPLE.fullmatch(line)
    assert match is not None, f"no sample: {line!r}"
    full, labels, value = match.groups()
    assert full in [name + suffix for suffix in _SUFFIXES[family.kind]], f"{line} stands in the family {name}"
    pairs = _PAIR.findall(labels or "")
    assert len({label for label, _ in pairs}) == len(pairs), line
    unescaped = {label: re.sub(r"\\(.)", lambda m: "\n" if m[1] == "n" else m[1], text) for label, text in pairs}
    key = full, frozenset(unescaped.items())
    assert key not in family.samples, f"{line} comes twice"
    family.samples[key] = float(value)
