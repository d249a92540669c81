"""The result of one check."""

from dataclasses import dataclass
from typing import Literal

Verdict = Literal["ok", "warn", "fail"]


@dataclass(frozen=True)
class Finding:
    """The result of one check.

    Attributes:
        what: The name of the checked object.
        verdict: "ok"; "warn": Ringward works, but with restrictions; "fail": Ringward does not work.
        text: The present state, for display.
        remedy: How to fix the problem; None: there is none.
    """

    what: str
    verdict: Verdict
    text: str
    remedy: str | None = None


def size(count: float) -> str:
    """Format a number of bytes for display."""
    for unit in ("bytes", "KB", "MB", "GB"):
        if count < 1024:
            return f"{count:.0f} {unit}"
        count /= 1024
    return f"{count:.1f} TB"
