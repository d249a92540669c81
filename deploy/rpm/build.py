"""``python -m deploy.rpm.build DIST MAN OUTPUT [ENVIRONMENT]``: build the RPM package.

It has the same files as the Debian package, with the same environment in ``/usr/lib/ringward``, which uses the Python
of the distribution (``RPM_PYTHON``, by default ``/usr/bin/python3``). Build it on the distribution that it is for, or
name a Python of the same version. ``RPM_PACKAGER`` names the packager.
"""

import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from deploy.debian.build import PLACE, Package
from deploy.release.build import epoch
from deploy.version import package_version, version
from supervisor.config.files.lookup import SYSTEM_FILE
from supervisor.tools.service.plan import NAME

HERE = Path(__file__).parent
_WHOLE = (f"{PLACE}/",)
"""Directories that belong to the package with everything in them."""


def _files(root: Path) -> str:
    """Return the list of files for the spec."""
    lines = ["%dir /etc/ringward", f"%config(noreplace) %attr(0640,root,root) {SYSTEM_FILE}", *_WHOLE]
    for path in sorted(root.rglob("*")):
        name = f"/{path.relative_to(root)}"
        if (path.is_symlink() or path.is_file()) and name != SYSTEM_FILE and not name.startswith(_WHOLE):
            lines.append(name)
    return "\n".join(lines)


def build(dist: Path, man: Path, output: Path, environment: Path | None = None) -> Path:
    """Build the package; return its path."""
    os.umask(0o022)
    seconds = epoch()
    with tempfile.TemporaryDirectory() as name:
        place = Path(name)
        package = Package(place / NAME, os.environ.get("RPM_PYTHON", "/usr/bin/python3"))
        package.environment(dist / f"{NAME}-{version()}-py3-none-any.whl", environment)
        package.program()
        package.service()
        package.documents(man)
        shutil.move(package.root / "lib/systemd", package.root / "usr/lib/systemd")  # /lib is a link there
        (package.root / "lib").rmdir()
        spec = place / f"{NAME}.spec"
        values = {
            "version": package_version(version()),
            "python": package.name,
            "root": package.root,
            "files": _files(package.root),
        }
        text = (HERE / "ringward.spec").read_text(encoding="utf-8")
        for word, value in values.items():
            text = text.replace(f"@{word}@", str(value))
        spec.write_text(text, encoding="utf-8")
        defines = {"_topdir": place / "build", "_rpmdir": place / "rpms", "_tmppath": place, "_prefix": "/usr"}
        defines["packager"] = os.environ.get("RPM_PACKAGER", "Ringward <root@localhost>")
        options = [word for key, value in defines.items() for word in ("--define", f"{key} {value}")]
        subprocess.run(
            ["rpmbuild", "-bb", "--quiet", *options, str(spec)],  # noqa: S607
            env={**os.environ, "SOURCE_DATE_EPOCH": str(seconds)},
            check=True,
        )
        (built,) = (place / "rpms").rglob("*.rpm")
        output.mkdir(parents=True, exist_ok=True)
        return Path(shutil.copy(built, output))


if __name__ == "__main__":
    print(build(*map(Path, sys.argv[1:])))
