"""The public view of a definition."""

from pathlib import Path

import msgspec

from supervisor.config.load import load
from supervisor.config.public_definition import definition_text


def test_unlimited_numbers(tmp_path: Path) -> None:
    """Unlimited numbers are the word of the configuration, because JSON has no infinity."""
    path = tmp_path / "ringward.toml"
    path.write_text('[services.s]\nrun = "x"\nrestart_attempts = "unlimited"\nflap_restarts = "unlimited"\n')
    shown = msgspec.json.decode(definition_text(load(str(path), {}).services["s"]))
    assert (shown["restart_attempts"], shown["flap_restarts"]) == ("unlimited", "unlimited")
