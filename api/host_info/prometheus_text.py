"""The text format of Prometheus, version 0.0.4: families of samples, each with a help text and a type.

https://prometheus.io/docs/instrumenting/exposition_formats/
"""

from collections.abc import Iterable
from typing import Literal

MEDIA_TYPE = "text/plain; version=0.0.4; charset=utf-8"

_IN_VALUE = str.maketrans({"\\": r"\\", "\n": r"\n", '"': r"\""})
_IN_HELP = str.maketrans({"\\": r"\\", "\n": r"\n"})

Kind = Literal["counter", "gauge", "histogram"]


class Text:
    """Families, in the order in which they were begun."""

    def __init__(self) -> None:
        self._lines: list[str] = []
        self._name = ""

    def family(self, name: str, kind: Kind, help_text: str) -> None:
        """Begin a family; the samples that follow are its own."""
        self._name = name
        self._lines.append(f"# HELP {name} {help_text.translate(_IN_HELP)}")
        self._lines.append(f"# TYPE {name} {kind}")

    def sample(self, value: float, *, suffix: str = "", **labels: str) -> None:
        """A sample of the family; of a histogram one with its suffix."""
        pairs = self._pairs(labels)
        self._lines.append(f"{self._name}{suffix}{{{pairs}}} {value!r}" if pairs else f"{self._name}{suffix} {value!r}")

    def histogram(self, within: Iterable[tuple[float, int]], count: int, total: float, **labels: str) -> None:
        """The samples of a histogram with these labels.

        Args:
            within: Bounds, ascending, each with how many observations do not exceed it.
            count: Of all observations.
            total: Their sum.
            labels: All but ``le``, at least one.
        """
        pairs, name = self._pairs(labels), self._name
        begin = f'{name}_bucket{{{pairs},le="'
        self._lines += [f'{begin}{bound!r}"}} {n!r}' for bound, n in within]
        self._lines.append(f'{begin}+Inf"}} {count!r}')
        self._lines.append(f"{name}_sum{{{pairs}}} {total!r}")
        self._lines.append(f"{name}_count{{{pairs}}} {count!r}")

    def _pairs(self, labels: dict[str, str]) -> str:
        return ",".join([f'{name}="{text.translate(_IN_VALUE)}"' for name, text in labels.items()])

    def encode(self) -> bytes:
        """All of it."""
        return "\n".join([*self._lines, ""]).encode()
