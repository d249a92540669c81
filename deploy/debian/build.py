"""``python -m deploy.debian.build DIST MAN OUTPUT [ENVIRONMENT]``: build the Debian package.

DIST has the wheel, and MAN the man pages. ENVIRONMENT is a copy of the environment from an earlier build. The package
has its own environment in ``/usr/lib/ringward``, which uses Debian's Python (``DEBIAN_PYTHON``, by default
``/usr/bin/python3``). pip gets the dependencies from the package index, in the versions and with the hashes of
``deploy/locked``.
``DEBFULLNAME`` and ``DEBEMAIL`` name the maintainer; lintian rejects the defaults.
"""

import gzip
import hashlib
import os
import shutil
import subprocess
import sys
import tempfile
from datetime import UTC, datetime
from email.utils import format_datetime
from pathlib import Path

from deploy.release.build import epoch
from deploy.release.lock import LOCKED
from deploy.release.materials import bill, installed, licences
from deploy.version import package_version, version
from deploy.zipapp.build import wanted
from supervisor.config.files.lookup import SYSTEM_DATA, SYSTEM_FILE
from supervisor.tools.service import systemd_plan
from supervisor.tools.service.plan import NAME, InstallOptions
from supervisor.tools.service.rendering import first_config

HERE = Path(__file__).parent
ROOT = HERE.parent.parent
PLACE = f"/usr/lib/{NAME}"
PROGRAM = f"/usr/bin/{NAME}"
_UNITS = "/lib/systemd/system"
_PLACES = {
    systemd_plan.UNIT: f"{_UNITS}/{NAME}.service",
    systemd_plan.BEFORE_254: f"{_UNITS}/{NAME}.service.d/before-254.conf",
    systemd_plan.SYSUSERS: f"/usr/lib/sysusers.d/{NAME}.conf",
}
_COMPLETIONS = {
    "bash": f"/usr/share/bash-completion/completions/{NAME}",
    "fish": f"/usr/share/fish/vendor_completions.d/{NAME}.fish",
    "zsh": f"/usr/share/zsh/vendor-completions/_{NAME}",
}
_DOCS = f"/usr/share/doc/{NAME}"
_TMPFILES = f"z {SYSTEM_FILE} 0640 root root -\n"
_REVISION = 1


class Package:
    """The files of a package below a directory."""

    def __init__(self, root: Path, python: str) -> None:
        self.root = root
        self.python = python
        told = "import sys; print(*sys.version_info[:3], sep='.')"
        self.release = subprocess.run(
            [self.python, "-c", told], capture_output=True, text=True, check=True
        ).stdout.strip()
        self.name = f"python{self.release.rpartition('.')[0]}"
        """Of Debian's package and program."""

    def write(self, path: str, content: str | bytes, mode: int = 0o644) -> None:
        """Write a file of the package."""
        place = self.root / path.lstrip("/")
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_bytes(content.encode() if isinstance(content, str) else content)
        place.chmod(mode)

    def environment(self, wheel: Path, copy: Path | None = None) -> None:
        """Install the wheel and its dependencies into an environment, as ``python -m venv`` makes it, or copy one."""
        place = self.root / PLACE.lstrip("/")
        if copy is not None:
            shutil.copytree(copy, place, symlinks=True)
            return
        packages = place / f"lib/{self.name}/site-packages"
        pip = [sys.executable, "-m", "pip", "--python", self.python, "install", "--quiet", "--no-compile"]
        pip += ["--target", str(packages)]
        locks = [f"--requirement={LOCKED / name}" for name in ("run.txt", "postgresql.txt")]
        subprocess.run([*pip, "--require-hashes", *locks], check=True)
        # By its name, because pip would note the path of a file.
        ours = f"{NAME}=={wheel.name.split('-')[1]}"
        subprocess.run([*pip, "--no-deps", "--upgrade", "--no-index", f"--find-links={wheel.parent}", ours], check=True)
        shutil.rmtree(packages / "bin")
        for path in packages.rglob("*"):
            if path.is_file() and not wanted(str(path.relative_to(packages))):
                path.unlink()
        for path in packages.rglob("*"):
            path.chmod(0o755 if path.is_dir() else 0o644)
        subprocess.run(["strip", "--strip-unneeded", *map(str, packages.rglob("*.so*"))], check=True)  # noqa: S607
        home = f"home = /usr/bin\ninclude-system-site-packages = false\nversion = {self.release}\n"
        self.write(f"{PLACE}/pyvenv.cfg", home)
        script = f"#!{PLACE}/bin/python -I\nfrom ringward import main\n\nmain()\n"
        self.write(f"{PLACE}/bin/{NAME}", script, 0o755)
        (place / "bin/python").symlink_to(f"/usr/bin/{self.name}")

    def program(self) -> None:
        """Put the program into PATH."""
        (self.root / "usr/bin").mkdir(parents=True)
        (self.root / "usr/bin" / NAME).symlink_to(f"../lib/{NAME}/bin/{NAME}")

    def service(self) -> None:
        """Write the unit, the user, the directories, and a configuration without tasks."""
        for file in systemd_plan.plan(InstallOptions(PROGRAM, SYSTEM_FILE, SYSTEM_DATA, old_systemd=True)).files:
            self.write(_PLACES[file.path], file.text.rpartition("# Written by")[0])
        self.write(f"/usr/lib/tmpfiles.d/{NAME}.conf", _TMPFILES)
        self.write(SYSTEM_FILE, first_config(SYSTEM_FILE, SYSTEM_DATA), 0o640)

    def documents(self, man: Path) -> None:
        """Write man pages, completions, the change log, and lists of the packages in the environment."""
        for page in (f"{NAME}.1", f"{NAME}.toml.5"):
            section = f"/usr/share/man/man{page[-1]}"
            self.write(f"{section}/{page}.gz", packed((man / page).read_bytes()))
        for shell, path in _COMPLETIONS.items():
            command = [sys.executable, "-I", "-m", NAME, "completion", shell]
            self.write(path, subprocess.run(command, capture_output=True, check=True).stdout)
        self.write(f"{_DOCS}/changelog.gz", packed((ROOT / "CHANGELOG.rst").read_bytes()))
        (packages,) = self.root.glob(f"{PLACE[1:]}/lib/python3*/site-packages")
        contents = installed(str(packages))
        self.write(f"{_DOCS}/licences.txt", licences(contents, version()))
        self.write(f"{_DOCS}/{NAME}.cdx.json", bill(contents, version(), epoch()))

    def debian_documents(self, maintainer: str, seconds: int) -> None:
        """Write the files that only Debian wants."""
        date = format_datetime(datetime.fromtimestamp(seconds, UTC))
        log = f"{NAME} ({_version()}) unstable; urgency=medium\n\n  * See changelog.gz.\n\n -- {maintainer}  {date}\n"
        self.write(f"{_DOCS}/changelog.Debian.gz", packed(log.encode()))
        self.write(f"{_DOCS}/copyright", (HERE / "copyright").read_bytes())
        self.write(f"/usr/share/lintian/overrides/{NAME}", (HERE / "lintian-overrides").read_bytes())

    def control(self, maintainer: str) -> None:
        """Write the control files, after all others."""
        architecture = subprocess.run(
            ["dpkg", "--print-architecture"],  # noqa: S607
            capture_output=True,
            text=True,
            check=True,
        ).stdout
        files = sorted(path for path in self.root.rglob("*") if path.is_file() and not path.is_symlink())
        names = [(path, str(path.relative_to(self.root))) for path in files]
        size = sum(path.stat().st_size for path in files) // 1024
        text = (
            (HERE / "control")
            .read_text()
            .format(
                version=_version(),
                architecture=architecture.strip(),
                maintainer=maintainer,
                size=size,
                python=self.name,
            )
        )
        self.write("DEBIAN/control", text)
        self.write("DEBIAN/conffiles", f"{SYSTEM_FILE}\n")
        sums = [f"{hashlib.md5(path.read_bytes()).hexdigest()}  {name}\n" for path, name in names]  # noqa: S324 - dpkg's
        self.write("DEBIAN/md5sums", "".join(sums))
        for script in ("postinst", "prerm", "postrm"):
            self.write(f"DEBIAN/{script}", (HERE / script).read_bytes(), 0o755)


def packed(data: bytes) -> bytes:
    """Compress a file in the same way each time."""
    return gzip.compress(data, mtime=0)


def _version() -> str:
    return f"{package_version(version())}-{_REVISION}"


def build(dist: Path, man: Path, output: Path, environment: Path | None = None) -> Path:
    """Build the package; return its path."""
    os.umask(0o022)
    seconds = epoch()
    maintainer = f"{os.environ.get('DEBFULLNAME', 'Ringward')} <{os.environ.get('DEBEMAIL', 'root@localhost')}>"
    with tempfile.TemporaryDirectory() as name:
        package = Package(Path(name) / NAME, os.environ.get("DEBIAN_PYTHON", "/usr/bin/python3"))
        package.environment(dist / f"{NAME}-{version()}-py3-none-any.whl", environment)
        package.program()
        package.service()
        package.documents(man)
        package.debian_documents(maintainer, seconds)
        package.control(maintainer)
        for path in (package.root, *package.root.rglob("*")):
            os.utime(path, (seconds, seconds), follow_symlinks=False)
        output.mkdir(parents=True, exist_ok=True)
        command = ["dpkg-deb", "--root-owner-group", "-Zxz", "--build", str(package.root), str(output)]
        environ = {**os.environ, "SOURCE_DATE_EPOCH": str(seconds)}
        told = subprocess.run(command, env=environ, check=True, capture_output=True, text=True).stdout
    return Path(told.rpartition(" in '")[2].partition("'")[0])


if __name__ == "__main__":
    print(build(*map(Path, sys.argv[1:])))
