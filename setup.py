"""The packages of a distribution; ``setup.cfg`` has everything else.

An installation has the module ``ringward`` and a folder of the same name, which holds the packages of this directory.
An editable installation only puts this directory on ``sys.path``.
"""

import re
import sys
from pathlib import Path

from setuptools import find_packages, setup
from setuptools.command.build_py import build_py
from setuptools.command.sdist import sdist

sys.path.insert(0, str(Path(__file__).parent))

from deploy.version import SOURCE, source, version

OURS = ("api", "logring", "store", "supervisor")


def description() -> str:
    """Return the README without pictures and links that lead to other files of the repository."""
    text = (Path(__file__).parent / "README.rst").read_text(encoding="utf-8")
    text = re.sub(r"^\.\. image:: .*\n(?: +.*\n)*\n", "", text, flags=re.MULTILINE)
    return re.sub(r"`([^`<]+?)\s+<(?!https?:)[^>]+>`__", r"\1", text)


class BuildPy(build_py):
    """Writes the exact version into what is built."""

    def run(self) -> None:
        """Build the modules."""
        super().run()
        (Path(self.build_lib) / "ringward" / SOURCE).write_text(source(version()), encoding="utf-8")


class Sdist(sdist):
    """Writes the exact version into the sdist."""

    def make_release_tree(self, base_dir: str, files: list[str]) -> None:
        """Copy the files."""
        super().make_release_tree(base_dir, files)
        place = Path(base_dir, SOURCE)
        place.unlink()  # it can be a hard link to ours
        place.write_text(source(version()), encoding="utf-8")


if "editable_wheel" in sys.argv:
    # An empty prefix mapped to the root gives a plain path entry: no import hook at start.
    setup(version=version(), packages=[], package_dir={"": "."}, long_description=description())
else:
    found = find_packages(include=[pattern for name in OURS for pattern in (name, f"{name}.*")])
    setup(
        version=version(),
        cmdclass={"build_py": BuildPy, "sdist": Sdist},
        long_description=description(),
        packages=[f"ringward.{name}" for name in found],
        package_dir={f"ringward.{name}": name.replace(".", "/") for name in found},
    )
