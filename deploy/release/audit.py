"""``python -m deploy.release.audit``: check the locked packages; the exit status is 1 if one of them must be replaced.

1. The lock files have everything that ``setup.cfg`` requires, in a version that it allows.
2. The package index still has each locked file, and no locked version is withdrawn (yanked).
3. No security advisory names a locked version. The advisories come from the JSON interface of the index, which few
   indexes beside PyPI have; without it, this check is reported as not made.

If the index cannot be reached, the second and third check are findings: nothing was audited.
"""

import json
import re
import sys
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from deploy.release.lock import LOCKED, ROOT, about, index
from tests.lowest_versions import requirements

_ENTRY = re.compile(r"(?P<name>[\w.-]+)==(?P<version>\S+)(?P<rest>(?:.*\\\n)*.*)")
_HASH = re.compile(r"--hash=sha256:([0-9a-f]{64})")


class Locked(NamedTuple):
    """A package in the lock files."""

    version: str
    hashes: frozenset[str]


def locked(place: Path = LOCKED) -> dict[str, Locked]:
    """Return the packages in all lock files by their names."""
    return {
        found["name"]: Locked(found["version"], frozenset(_HASH.findall(found["rest"])))
        for file in sorted(place.glob("*.txt"))
        for found in _ENTRY.finditer(file.read_text(encoding="utf-8"))
    }


def unmet(packages: dict[str, Locked], setup_cfg: Path = ROOT / "setup.cfg") -> Iterator[str]:
    """Yield each requirement of Ringward that the lock files do not meet."""
    for line in requirements(setup_cfg):
        wanted = Requirement(line)
        one = packages.get(canonicalize_name(wanted.name))
        if one is None:
            yield f"{wanted.name}: setup.cfg requires it, but no lock file has it; run `make lock`"
        elif one.version not in wanted.specifier:
            yield f"{wanted.name} {one.version}: setup.cfg requires {wanted.specifier}; run `make lock`"


def withdrawn(packages: dict[str, Locked]) -> Iterator[str]:
    """Yield each locked package of which the index lacks a file, or has withdrawn one."""
    for name, one in packages.items():
        files = {file["hashes"].get("sha256"): file for file in about(name)["files"]}
        if missing := one.hashes - files.keys():
            yield f"{name} {one.version}: the index lacks {len(missing)} of the locked files"
        reasons = {files[each].get("yanked") for each in one.hashes & files.keys()} - {False, None}
        yield from (f"{name} {one.version}: withdrawn: {reason}" for reason in sorted(map(str, reasons)))


def _release(name: str, version: str) -> Any:
    """Return the index's data on a release; None if it has no JSON interface."""
    base = index().removesuffix("/simple")
    try:
        with urllib.request.urlopen(f"{base}/pypi/{name}/{version}/json", timeout=60) as answer:  # noqa: S310
            return json.load(answer)
    except (urllib.error.HTTPError, ValueError):
        return None


def advisories(packages: dict[str, Locked]) -> Iterator[str]:
    """Yield each security advisory about a locked version.

    Raises:
        LookupError: the index gives no advisories.
    """
    for name, one in packages.items():
        release = _release(name, one.version)
        if release is None or "vulnerabilities" not in release:
            raise LookupError(f"{index()} has no advisories about {name} {one.version}")
        for found in release["vulnerabilities"]:
            if not found.get("withdrawn"):
                fixed = ", ".join(found.get("fixed_in") or ()) or "no version"
                yield f"{name} {one.version}: {found['id']}: {found.get('summary') or ''} (fixed in {fixed})"


def main() -> int:
    """Print the findings; return the exit status."""
    packages = locked()
    hashes = sum(len(package.hashes) for package in packages.values())
    print(f"{len(packages)} packages with {hashes} hashes in {LOCKED.relative_to(ROOT)}")
    findings = [*unmet(packages)]
    for what, check in (("files in the index", withdrawn), ("security advisories", advisories)):
        try:
            findings += check(packages)
        except (urllib.error.HTTPError, LookupError) as err:
            print(f"{what}: NOT CHECKED: {err}")
        except urllib.error.URLError as err:
            findings.append(f"{what}: NOT CHECKED: cannot reach {index()}: {err.reason}")
        else:
            print(f"{what}: checked")
    print("\n".join(findings) or "no findings")
    return int(bool(findings))


if __name__ == "__main__":
    sys.exit(main())
