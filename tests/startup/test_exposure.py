"""What ``ringward up`` settles about who can reach the API."""

import grp
import os
import subprocess
from pathlib import Path

import pytest

from supervisor.cli import exit_codes
from supervisor.config.problems import Unusable
from supervisor.startup.exposure import certificate_names
from tests.cli.commands.test_up import Up, boot_of, shared_memory, up
from tests.support.paths import TLS

__all__ = ["shared_memory", "up"]  # fixtures

CERT, KEY = str(TLS / "cert.pem"), str(TLS / "key.pem")


def test_the_names_of_a_certificate() -> None:
    """Its DNS names and addresses, the latter in their shortest form."""
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
)
def test_what_is_no_pair(cert: str, key: str, reason: str) -> None:
    """The daemon does not start, and says which files and why."""
    with pytest.raises(Unusable) as caught:
        certificate_names(cert, key)
    assert cert in str(caught.value)
    assert reason in str(caught.value)


def test_a_locked_key(tmp_path: Path) -> None:
    """No passphrase is asked for."""
    locked = tmp_path / "locked.pem"
    command = ["openssl", "ec", "-aes128", "-passout", "pass:secret", "-in", KEY, "-out", str(locked)]
    try:
        subprocess.run(command, check=True, capture_output=True)
    except (OSError, subprocess.CalledProcessError):
        pytest.skip("no openssl on this host")
    with pytest.raises(Unusable, match="passphrase"):
        certificate_names(CERT, str(locked))


def test_everything_reaches_the_server(up: Up) -> None:
    """Names of the configuration, of the external address and of the certificate; the group as a number."""
    group = grp.getgrgid(os.getgid()).gr_name
    config = (
        f'[http]\nlisten = ["0.0.0.0:7464"]\ntls_cert = "{CERT}"\ntls_key = "{KEY}"\nhosts = ["jobs"]\n'
        f'external_url = "https://example.com/ring"\nbase_path = "/ring"\nbehind_proxy = ["10.0.0.0/8"]\n'
        f'socket = "http.sock"\nsocket_group = "{group}"\n'
    )
    boot = boot_of(up(config=config))
    assert boot.hosts == ["jobs", "example.com", "ringward.test", "*.example.test", "127.0.0.1", "2001:db8::1"]
    assert (boot.listen, boot.behind_proxy) == ([("0.0.0.0", 7464)], ["10.0.0.0/8"])
    assert (boot.external_url, boot.base_path) == ("https://example.com/ring", "/ring")
    assert (boot.tls_cert, boot.tls_key, boot.socket_gid) == (CERT, KEY, os.getgid())


def test_an_address_that_others_could_read(up: Up) -> None:
    """Refused with the reason, in the configuration and on the command line; with TLS it is not."""
    outcome = up(config='[http]\nlisten = ["0.0.0.0:7464"]\n')
    assert outcome.result.exit_code == exit_codes.CONFIG
    assert "without TLS the password and all output would cross the network unencrypted" in outcome.result.stderr
    outcome = up("--listen", "0.0.0.0:7464")
    assert outcome.result.exit_code == exit_codes.USAGE
    assert "without TLS" in outcome.result.stderr
    outcome = up("--listen", "0.0.0.0:7464", config=f'[http]\ntls_cert = "{CERT}"\ntls_key = "{KEY}"\n')
    assert boot_of(outcome).listen == [("0.0.0.0", 7464)]


def test_a_socket_for_proxies(up: Up) -> None:
    """It reaches the server; the path of the socket that trusts its peers is refused, also where it is the default."""
    boot = boot_of(up(config='[http]\nproxy_socket = "proxy.sock"\n'))
    assert boot.proxy_socket is not None
    assert boot.proxy_socket.endswith("/proxy.sock")
    outcome = up(config=f'[http]\nproxy_socket = "{boot.http_socket}"\n')
    assert outcome.result.exit_code == exit_codes.CONFIG
    assert "is the socket whose peers are trusted" in outcome.result.stderr


def test_an_unknown_group(up: Up) -> None:
    """Refused before anything is made."""
    outcome = up(config='[http]\nsocket = "http.sock"\nsocket_group = "no such group"\n')
    assert outcome.result.exit_code == exit_codes.CONFIG
    assert "no such group on this host: no such group" in outcome.result.stderr
