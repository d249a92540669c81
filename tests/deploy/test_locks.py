"""The lock files, and ``make audit``."""

import json
import socket
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest
from packaging.requirements import Requirement

from deploy.release import audit, lock
from deploy.release.audit import Locked
from deploy.release.lock import Package
from deploy.release.materials import needs
from deploy.zipapp.build import EXTRAS

ANSWERS: dict[str, Any] = {}
ONE = {"one": Locked("1.0", frozenset({"a" * 64, "b" * 64}))}


class _Index(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        answer = ANSWERS.get(self.path)
        self.send_response(200 if answer else 404)
        self.end_headers()
        self.wfile.write(json.dumps(answer).encode())

    def log_message(self, *_: object) -> None:
        """Print nothing."""


@pytest.fixture
def index(monkeypatch: pytest.MonkeyPatch) -> Iterator[dict[str, Any]]:
    """A package index that answers with these documents."""
    server = ThreadingHTTPServer(("127.0.0.1", 0), _Index)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    monkeypatch.setenv("PIP_INDEX_URL", f"http://127.0.0.1:{server.server_port}/simple/")
    ANSWERS.clear()
    yield ANSWERS
    server.shutdown()
    thread.join()
    server.server_close()


def files(*hashes: str, yanked: object = False) -> dict[str, Any]:
    return {
        "files": [
            {"filename": f"{digest}.whl", "hashes": {"sha256": digest * 64}, "yanked": yanked} for digest in hashes
        ]
    }


def test_lock_files_are_complete() -> None:
    """Each package that an installation needs is locked, with hashes, in a version that ``setup.cfg`` allows."""
    packages = audit.locked()
    assert list(audit.unmet(packages)) == []
    assert needs(EXTRAS).keys() - {"ringward"} <= packages.keys()
    assert all(package.hashes for package in packages.values())


def test_unmet_requirement_is_found() -> None:
    """A package without a lock, and a version that ``setup.cfg`` excludes, are named with the remedy."""
    packages = audit.locked()
    del packages["click"]
    packages["falcon"] = Locked("3.0", frozenset())
    assert list(audit.unmet(packages)) == [
        "click: setup.cfg requires it, but no lock file has it; run `make lock`",
        "falcon 3.0: setup.cfg requires <5,>=4.4; run `make lock`",
    ]


def test_markers_and_extras() -> None:
    """A package that only older Pythons need has a marker; extras count where a requirement names them."""
    packages_found = {
        "one": Package("1", (Requirement('two; python_version < "3.13"'), Requirement('three; extra == "more"'))),
        "two": Package("1", ()),
        "three": Package("1", ()),
    }
    assert lock.needed(packages_found, "one") == {"one": "", "two": 'python_version < "3.13"'}
    assert set(lock.needed(packages_found, "one[more]")) == {"one", "two", "three"}
    newer = {"one": Package("1", (Requirement('two; python_version > "3.12"'),)), "two": Package("1", ())}
    with pytest.raises(ValueError, match="two: needed on"):
        lock.needed(newer, "one")


def test_hashes_of_usable_files(index: dict[str, Any]) -> None:
    """Only wheels for supported Pythons on Linux, and the sources of this version, have hashes."""
    usable = [
        "one-1.0-py3-none-any.whl",
        "one-1.0-py2.py3-none-any.whl",
        "one-1.0-cp312-cp312-manylinux_2_17_aarch64.whl",
        "one-1.0-cp39-abi3-musllinux_1_2_x86_64.whl",
        "one-1.0.tar.gz",
    ]
    others = [
        "one-1.1-py3-none-any.whl",
        "one-1.1.tar.gz",
        "one-1.0-cp310-cp310-manylinux_2_17_x86_64.whl",
        "one-1.0-cp312-cp312-macosx_11_0_arm64.whl",
        "one-1.0-cp312-cp312-manylinux_2_17_ppc64le.whl",
        "one-1.0-cp312-cp312-win_amd64.whl",
    ]
    index["/simple/one/"] = {"files": [{"filename": name, "hashes": {"sha256": name}} for name in usable + others]}
    assert lock.hashes("one", "1.0") == sorted(usable)
    with pytest.raises(ValueError, match=r"one 2\.0: the index has no file"):
        lock.hashes("one", "2.0")


def test_withdrawn_and_missing_files_are_found(index: dict[str, Any]) -> None:
    """A locked file that the index lacks, and a version that its authors have withdrawn, are findings."""
    index["/simple/one/"] = files("a", "b", "c")
    assert list(audit.withdrawn(ONE)) == []
    index["/simple/one/"] = files("a", yanked="breaks everything")
    assert list(audit.withdrawn(ONE)) == [
        "one 1.0: the index lacks 1 of the locked files",
        "one 1.0: withdrawn: breaks everything",
    ]


def test_advisories_are_found(index: dict[str, Any]) -> None:
    """An advisory about a locked version is a finding, unless it was withdrawn."""
    vulnerability = {"id": "PYSEC-1", "summary": "Reads too much", "fixed_in": ["1.1"], "withdrawn": None}
    index["/pypi/one/1.0/json"] = {
        "vulnerabilities": [vulnerability, {**vulnerability, "id": "PYSEC-2", "withdrawn": "2026-01-01"}]
    }
    assert list(audit.advisories(ONE)) == ["one 1.0: PYSEC-1: Reads too much (fixed in 1.1)"]


def test_unreachable_index_is_a_finding(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    """Without an index that answers, the audit fails, and names the index and the reason for each check."""
    with socket.create_server(("127.0.0.1", 0)) as closed:
        address = f"http://127.0.0.1:{closed.getsockname()[1]}/simple"
    monkeypatch.setenv("PIP_INDEX_URL", address)
    monkeypatch.setattr(audit, "locked", lambda: ONE)
    monkeypatch.setattr(audit, "unmet", lambda _packages: [])
    assert audit.main() == 1
    text = capsys.readouterr().out
    for check in ("files in the index", "security advisories"):
        assert f"{check}: NOT CHECKED: cannot reach {address}: [Errno 111] Connection refused" in text


@pytest.mark.usefixtures("index")
def test_missing_advisories_are_reported(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    """Without advisories and files in the index, the audit reports the skipped checks and performs the others."""
    monkeypatch.setattr(audit, "locked", lambda: ONE)
    assert audit.main() == 1
    text = capsys.readouterr().out
    assert "files in the index: NOT CHECKED: HTTP Error 404" in text
    assert "security advisories: NOT CHECKED: " in text
    assert "click: setup.cfg requires it" in text
