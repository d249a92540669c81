"""What a task may ask for where the clocks of its time zone change."""

from typing import Literal

DstGap = Literal["run", "skip"]
"""Of a local time that does not exist: run at the end of the gap, or not at all."""
DstOverlap = Literal["first", "both", "second"]
"""Which of two equal local times run."""
