"""Print the lowest versions that ``setup.cfg`` allows, as constraints for pip: ``python -m tests.lowest_versions``."""

import configparser
import re
from pathlib import Path

_LOWEST = re.compile(r"(?P<name>[\w.-]+)(?:\[[\w,]+\])?\s*[>=]=\s*(?P<version>[\w.]+)(?P<rest>[^;]*)(?P<marker>;.*)?")


def requirements(setup_cfg: Path) -> list[str]:
    """Return what an installation with PostgreSQL requires."""
    config = configparser.ConfigParser()
    config.read(setup_cfg)
    lines = config["options"]["install_requires"] + config["options.extras_require"]["postgresql"]
    return [line for line in lines.splitlines() if line]


def lowest(requirement: str) -> str | None:
    """Return the constraint for a requirement's lowest version, or None if it allows any version."""
    match = _LOWEST.fullmatch(requirement)
    return f"{match['name']} =={match['version']}{match['marker'] or ''}" if match else None


if __name__ == "__main__":
    for needed in requirements(Path(__file__).parent.parent / "setup.cfg"):
        if constraint := lowest(needed):
            print(constraint)
