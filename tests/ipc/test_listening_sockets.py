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
    boot = replace(BOOT, listen=[], runtime_dir=str(tmp_path), http_socket=str(tmp_path / "http.sock"), socket_gid=gid)
    (listener,) = listen(boot)
    listener.close()
    return os.stat(boot.http_socket)


def test_the_unix_socket_is_for_its_owner(tmp_path: Path) -> None:
    """0600, under any umask."""
    before = os.umask(0)
    try:
        assert stat.S_IMODE(mode_of(tmp_path, None).st_mode) == 0o600
    finally:
        os.umask(before)


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root to give a file to any group")
def test_a_group_that_may_connect(tmp_path: Path) -> None:
    """0660, and the group's."""
    found = mode_of(tmp_path, 12345)
    assert (stat.S_IMODE(found.st_mode), found.st_gid) == (0o660, 12345)


def test_a_socket_for_proxies(tmp_path: Path) -> None:
    """It is bound beside the other one, with the same mode, and programs of this host are not told of it."""
    path = tmp_path / "proxy.sock"
    boot = replace(BOOT, listen=[], runtime_dir=str(tmp_path), http_socket=str(tmp_path / "http.sock"))
    listeners = listen(replace(boot, proxy_socket=str(path)))
    assert [one.getsockname() for one in listeners] == [boot.http_socket, str(path)]
    for one in listeners:
        one.close()
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert json.loads((tmp_path / "listening.json").read_text()) == {"http": [], "socket": boot.http_socket}


def test_a_group_that_cannot_be_given(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The daemon does not start, and says so."""

    def refuse(*_: object) -> None:
        raise PermissionError(1, "Operation not permitted")

    monkeypatch.setattr(os, "chown", refuse)
    with pytest.raises(CannotListen, match="Operation not permitted"):
        mode_of(tmp_path, 1)


def test_a_socket_of_somebody_who_lives(tmp_path: Path) -> None:
    """It is left to them; that of a dead process is replaced."""
    boot = replace(BOOT, listen=[], runtime_dir=str(tmp_path), http_socket=str(tmp_path / "http.sock"))
    (living,) = listen(boot)
    with pytest.raises(CannotListen, match="another process listens there"):
        listen(boot)
    with socket.socket(socket.AF_UNIX) as client:
        client.connect(boot.http_socket)
    living.close()
    assert os.path.exists(boot.http_socket)
    (next_one,) = listen(boot)
    next_one.close()


def test_ipv6_is_only_that(tmp_path: Path) -> None:
    """An IPv6 address takes no IPv4 connections in disguise, whose addresses would look like others."""
    boot = replace(BOOT, listen=[("::1", 0)], runtime_dir=str(tmp_path), http_socket=str(tmp_path / "http.sock"))
    try:
        tcp, unix = listen(boot)
    except CannotListen:
        pytest.skip("this host has no IPv6")
    with tcp, unix:
        assert tcp.getsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY) == 1
