"""Places in the repository that tests need."""

from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PROGRAMS = ROOT / "tests" / "programs"
TLS = ROOT / "tests" / "support" / "tls"
