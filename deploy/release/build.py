"""``python -m deploy.release.build OUTPUT``: build the distributions, with lists of everything that they need.

OUTPUT gets the sdist, the wheel, which is built from the sdist, a bill of materials and a list of licences. The same
sources give the same distributions, byte for byte. All files have the time ``SOURCE_DATE_EPOCH``, or else the time of
the commit or of the sdist in which this runs. Other sources have the time of ``supervisor/version.py``.
"""

import gzip
import os
import subprocess
import sys
import tarfile
import tempfile
from pathlib import Path

from deploy.release.materials import write_lists
from deploy.version import ROOT, SOURCE


def epoch() -> int:
    """Return the time of all files, in seconds since 1970."""
    given = os.environ.get("SOURCE_DATE_EPOCH")
    if given is not None:
        return int(given)
    of_sdist = ROOT / "PKG-INFO"
    if of_sdist.exists():
        return int(of_sdist.stat().st_mtime)
    command = ["git", "-C", str(ROOT), "log", "-1", "--format=%ct"]
    try:
        return int(subprocess.run(command, capture_output=True, check=True).stdout)
    except (OSError, subprocess.CalledProcessError):
        return int((ROOT / SOURCE).stat().st_mtime)


def _build(kind: str, sources: Path, output: Path, seconds: int) -> Path:
    """Build one distribution of these sources; return its path."""
    command = [sys.executable, "-m", "build", "--no-isolation", kind, "--outdir", str(output), str(sources)]
    environ = {**os.environ, "SOURCE_DATE_EPOCH": str(seconds)}
    subprocess.run(command, check=True, env=environ, stdout=subprocess.DEVNULL, umask=0o022)
    (found,) = output.iterdir()
    return found


def _normalise(archive: Path, output: Path, seconds: int) -> None:
    """Copy an sdist without the names, times and modes of this host."""
    with (
        tarfile.open(archive) as source,
        output.open("wb") as file,
        gzip.GzipFile("", "wb", mtime=seconds, fileobj=file) as packed,
        tarfile.open(fileobj=packed, mode="w", format=tarfile.PAX_FORMAT) as target,
    ):
        for member in sorted(source.getmembers(), key=lambda entry: entry.name):
            executable = member.isdir() or member.mode & 0o100
            clean = tarfile.TarInfo(member.name)
            clean.type, clean.size, clean.linkname = member.type, member.size, member.linkname
            clean.mode, clean.mtime = 0o755 if executable else 0o644, seconds
            target.addfile(clean, source.extractfile(member) if member.isfile() else None)


def build(output: Path) -> None:
    """Build everything."""
    output.mkdir(parents=True, exist_ok=True)
    seconds = epoch()
    with tempfile.TemporaryDirectory() as name:
        work = Path(name)
        sdist = _build("--sdist", ROOT, work / "sdist", seconds)
        _normalise(sdist, output / sdist.name, seconds)
        with tarfile.open(output / sdist.name) as archive:
            archive.extraction_filter = getattr(tarfile, "tar_filter", None)  # Python before 3.11.4 has no filters
            archive.extractall(work / "sources")  # noqa: S202 - our own; keeps the modes whatever the umask
        (sources,) = (work / "sources").iterdir()
        wheel = _build("--wheel", sources, work / "wheel", seconds)
        (output / wheel.name).write_bytes(wheel.read_bytes())
    write_lists(output, seconds)
    for path in sorted(output.iterdir()):
        print(path)


if __name__ == "__main__":
    build(Path(sys.argv[1]))
