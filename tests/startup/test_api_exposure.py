"""Settings of ``ringward up`` for access to the API."""

import grp
import os
import subprocess
from pathlib import Path

import pytest

from supervisor.cli import exit_codes
from supervisor.config.problems import UnusableObject
from supervisor.startup.api_exposure import certificate_names
from tests.cli.commands.test_up import Up, boot_of, shared_memory, up
from tests.support.paths import TLS

__all__ = ["shared_memory", "up"]  # fixtures

CERT, KEY = str(TLS / "cert.pem"), str(TLS / "key.pem")


def test_certificate_names() -> None:
    """The names of a certificate are its DNS names and addresses, the latter in their shortest form."""
    assert certificate_names(CERT, KEY) == ["ringward.test", "*.example.test", "127.0.0.1", "2001:db8::1"]


@pytest.mark.parametrize(
    ("cert", "key", "reason"),
    [
        (CERT, str(TLS / "other_key.pem"), "mismatch"),
        (CERT, "/nowhere/key.pem", "No such file"),
        ("/nowhere/cert.pem", KEY, "No such file"),
        (KEY, KEY, "cannot use"),
        (CERT, CERT, "cannot use"),
    ],
    ids=["another key", "no key", "no certificate", "a key as certificate", "a certificate as key"],
)
def test_invalid_pair(cert: str, key: str, reason: str) -> None:
    """A certificate and a key that do not belong together are refused with the file and the reason."""
    with pytest.raises(UnusableObject) as caught:
        certificate_names(cert, key)
    assert cert in str(caught.value)
    assert reason in str(caught.value)


def test_encrypted_key(tmp_path: Path) -> None:
    """A key that needs a passphrase is refused without asking for it."""
    locked = tmp_path / "locked.pem"
    command = ["openssl", "ec", "-aes128", "-passout", "pass:secret", "-in", KEY, "-out", str(locked)]
    try:
        subprocess.run(command, check=True, capture_output=True)
    except (OSError, subprocess.CalledProcessError):
        pytest.skip("no openssl on this host")
    with pytest.raises(UnusableObject, match="passphrase"):
        certificate_names(CERT, str(locked))


def test_settings_reach_the_server(up: Up) -> None:
    """The server gets the names of configuration, external address and certificate, and the group as a number."""
    group = grp.getgrgid(os.getgid()).gr_name
    config = (
        f'[http]\nlisten = ["0.0.0.0:7464"]\ntls_cert = "{CERT}"\ntls_key = "{KEY}"\nhosts = ["jobs"]\n'
        f'external_url = "https://example.com/ring"\nbase_path = "/ring"\nbehind_proxy = ["10.0.0.0/8"]\n'
        f'socket = "http.sock"\nsocket_group = "{group}"\n'
    )
    settings = boot_of(up(config=config))
    assert settings.hosts == ["jobs", "example.com", "ringward.test", "*.example.test", "127.0.0.1", "2001:db8::1"]
    assert (settings.listen, settings.behind_proxy) == ([("0.0.0.0", 7464)], ["10.0.0.0/8"])
    assert (settings.external_url, settings.base_path) == ("https://example.com/ring", "/ring")
    assert (settings.tls_cert, settings.tls_key, settings.socket_gid) == (CERT, KEY, os.getgid())


def test_address_without_tls(up: Up) -> None:
    """A public address without TLS is refused with the reason, in the configuration and on the command line."""
    outcome = up(config='[http]\nlisten = ["0.0.0.0:7464"]\n')
    assert outcome.result.exit_code == exit_codes.CONFIG
    assert "without TLS the password and all output would cross the network unencrypted" in outcome.result.stderr
    outcome = up("--listen", "0.0.0.0:7464")
    assert outcome.result.exit_code == exit_codes.USAGE
    assert "without TLS" in outcome.result.stderr
    outcome = up("--listen", "0.0.0.0:7464", config=f'[http]\ntls_cert = "{CERT}"\ntls_key = "{KEY}"\n')
    assert boot_of(outcome).listen == [("0.0.0.0", 7464)]


def test_proxy_socket(up: Up) -> None:
    """The proxy socket reaches the server, and a path equal to the trusted socket's, even its default, is refused."""
    settings = boot_of(up(config='[http]\nproxy_socket = "proxy.sock"\n'))
    assert settings.proxy_socket is not None
    assert settings.proxy_socket.endswith("/proxy.sock")
    outcome = up(config=f'[http]\nproxy_socket = "{settings.http_socket}"\n')
    assert outcome.result.exit_code == exit_codes.CONFIG
    assert "is the socket whose peers are trusted" in outcome.result.stderr


def test_unknown_group(up: Up, tmp_path: Path, shared_memory: Path) -> None:
    """An unknown group of the socket is refused with its name, before any directory is created."""
    outcome = up(config='[http]\nsocket = "http.sock"\nsocket_group = "no such group"\n')
    assert outcome.result.exit_code == exit_codes.CONFIG
    assert "no such group on this host: no such group" in outcome.result.stderr
    assert [path.name for path in tmp_path.iterdir()] == ["ringward.toml"]
    assert list(shared_memory.iterdir()) == []
