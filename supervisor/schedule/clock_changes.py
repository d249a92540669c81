"""Policies of a task for local times that a clock change skips or repeats."""

from typing import Literal

DstGap = Literal["run", "skip"]
"""Policy for a local time that does not exist: run at the end of the gap, or skip."""
DstOverlap = Literal["first", "both", "second"]
"""Policy for a repeated local time: which of the two instants run."""
