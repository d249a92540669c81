"""The packages of a distribution; ``setup.cfg`` has everything else.

An installation has the module ``ringward`` and a folder of the same name, which holds the packages of this directory.
An editable installation only puts this directory on ``sys.path``.
"""

import sys

from setuptools import find_packages, setup

OURS = ("api", "logring", "store", "supervisor")

if "editable_wheel" in sys.argv:
    # An empty prefix mapped to the root gives a plain path entry: no import hook at start.
    setup(packages=[], package_dir={"": "."})
else:
    found = find_packages(include=[pattern for name in OURS for pattern in (name, f"{name}.*")])
    setup(
        packages=[f"ringward.{name}" for name in found],
        package_dir={f"ringward.{name}": name.replace(".", "/") for name in found},
    )
