"""The text format of Prometheus, version 0.0.4: families of samples, each with a help text and a type.

https://prometheus.io/docs/instrumenting/exposition_formats/
"""

from typing import Literal

MEDIA_TYPE = "text/plain; version=0.0.4; charset=utf-8"

_IN_VALUE = str.maketrans({"\\": r"\\", "\n": r"\n", '"': r"\""})
_IN_HELP = str.maketrans({"\\": r"\\", "\n": r"\n"})

Kind = Literal["counter", "gauge", "summary"]


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
        """A sample of the family; of a summary one with the suffix ``_sum`` or ``_count``."""
        pairs = ",".join(f'{name}="{text.translate(_IN_VALUE)}"' for name, text in labels.items())
        self._lines.append(f"{self._name}{suffix}{{{pairs}}} {value!r}" if pairs else f"{self._name}{suffix} {value!r}")

    def encode(self) -> bytes:
        """All of it."""
        return "\n".join([*self._lines, ""]).encode()
