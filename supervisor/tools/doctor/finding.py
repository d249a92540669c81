"""The result of one check."""

from dataclasses import dataclass
from typing import Literal

Verdict = Literal["ok", "warn", "fail"]


@dataclass(frozen=True)
class Finding:
    """How one thing is.

    Attributes:
        what: Name of the checked object.
        verdict: "ok"; "warn": Ringward works, but not as well as it could; "fail": it does not work.
        text: How it is, for people.
        remedy: The action that fixes it.
    """

    what: str
    verdict: Verdict
    text: str
    remedy: str | None = None


def size(count: float) -> str:
    """Bytes for people."""
    for unit in ("bytes", "KB", "MB", "GB"):
        if count < 1024:
            return f"{count:.0f} {unit}"
        count /= 1024
    return f"{count:.1f} TB"
