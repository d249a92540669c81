"""The sockets of the HTTP API."""

import json
import os
import socket
import stat
from dataclasses import replace
from pathlib import Path

import pytest

from supervisor.ipc.listening_sockets import CannotListen, listen
from tests.root.loop.test_shortage import BOOT


def mode_of(tmp_path: Path, gid: int | None) -> os.stat_result:
    settings = replace(
        BOOT, listen=[], runtime_dir=str(tmp_path), http_socket=str(tmp_path / "http.sock"), socket_gid=gid
    )
    (listener,) = listen(settings)
    listener.close()
    return os.stat(settings.http_socket)


def test_unix_socket_mode(tmp_path: Path) -> None:
    """The Unix socket has mode 0600 under any umask."""
    before = os.umask(0)
    try:
        assert stat.S_IMODE(mode_of(tmp_path, None).st_mode) == 0o600
    finally:
        os.umask(before)


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root to give a file to any group")
def test_socket_group(tmp_path: Path) -> None:
    """With a socket group, the Unix socket belongs to the group and has mode 0660."""
    status = mode_of(tmp_path, 12345)
    assert (stat.S_IMODE(status.st_mode), status.st_gid) == (0o660, 12345)


def test_proxy_socket(tmp_path: Path) -> None:
    """The proxy socket is bound beside the other one with the same mode, and is not announced on this host."""
    path = tmp_path / "proxy.sock"
    settings = replace(BOOT, listen=[], runtime_dir=str(tmp_path), http_socket=str(tmp_path / "http.sock"))
    listeners = listen(replace(settings, proxy_socket=str(path)))
    assert [listener.getsockname() for listener in listeners] == [settings.http_socket, str(path)]
    for sock in listeners:
        sock.close()
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert json.loads((tmp_path / "listening.json").read_text()) == {"http": [], "socket": settings.http_socket}


def test_group_cannot_be_set(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """If the group cannot be set, the daemon does not start and reports the reason."""

    def refuse(*_: object) -> None:
        raise PermissionError(1, "Operation not permitted")

    monkeypatch.setattr(os, "chown", refuse)
    with pytest.raises(CannotListen, match="Operation not permitted"):
        mode_of(tmp_path, 1)


def test_socket_in_use(tmp_path: Path) -> None:
    """A socket on which a process listens is left alone, the error names it, and that of a dead process is replaced."""
    settings = replace(BOOT, listen=[], runtime_dir=str(tmp_path), http_socket=str(tmp_path / "http.sock"))
    (living,) = listen(settings)
    name = Path("/proc/self/comm").read_text().strip()
    with pytest.raises(CannotListen, match=rf"http.sock: {name} \({os.getpid()}\) listens there; set another path"):
        listen(settings)
    with socket.socket(socket.AF_UNIX) as client:
        client.connect(settings.http_socket)
    living.close()
    assert os.path.exists(settings.http_socket)
    (next_one,) = listen(settings)
    next_one.close()


def test_ipv6_only(tmp_path: Path) -> None:
    """An IPv6 address takes no mapped IPv4 connections, whose addresses would look like others."""
    settings = replace(BOOT, listen=[("::1", 0)], runtime_dir=str(tmp_path), http_socket=str(tmp_path / "http.sock"))
    try:
        tcp, unix = listen(settings)
    except CannotListen:
        pytest.skip("this host has no IPv6")
    with tcp, unix:
        assert tcp.getsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY) == 1
