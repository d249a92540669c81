"""Keys that expose the API to other hosts."""

from collections.abc import Callable

import pytest

from supervisor.config.model import Config
from supervisor.config.problems import ConfigError, InvalidValue
from supervisor.config.value_types.listen import check_exposed

Load = Callable[..., Config]

EVERYTHING = """
[http]
listen = ["0.0.0.0:443", "[::]:443", "[2001:db8::1]:80"]
socket = "run/http.sock"
socket_group = "users"
tls_cert = "cert.pem"
tls_key = "/key.pem"
behind_proxy = ["10.0.0.0/8", "192.0.2.1", "2001:db8::/32"]
hosts = ["Jobs.Example.com", "*.example.com", "[::1]", "10.0.0.1"]
external_url = "https://Example.com:8443/jobs/"
base_path = "/jobs/"
"""


def test_all_keys(config: Load) -> None:
    """Values have one form: lower-case names, numeric addresses, no slash at the end."""
    http = config(EVERYTHING).http
    assert http.listen == (("0.0.0.0", 443), ("::", 443), ("2001:db8::1", 80))
    assert http.socket_group == "users"
    assert (http.tls_cert or "").endswith("/cert.pem")
    assert http.tls_key == "/key.pem"
    assert http.behind_proxy == ("10.0.0.0/8", "192.0.2.1/32", "2001:db8::/32")
    assert http.hosts == ("jobs.example.com", "*.example.com", "::1", "10.0.0.1")
    assert http.external_url == "https://example.com:8443/jobs"
    assert http.base_path == "/jobs"


def test_proxy_socket(config: Load) -> None:
    """proxy_socket takes a path, and socket_group needs no other socket beside it."""
    http = config("[http]\nproxy_socket = '/run/jobs/proxy.sock'\nsocket_group = 'www-data'\n").http
    assert (http.socket, http.proxy_socket, http.socket_group) == (None, "/run/jobs/proxy.sock", "www-data")
    assert config("").http.proxy_socket is None


def test_defaults(config: Load) -> None:
    """By default the API is reachable only from this host."""
    http = config("").http
    assert (http.listen, http.tls_cert, http.behind_proxy, http.hosts) == ((("127.0.0.1", 7464),), None, (), ())
    assert (http.external_url, http.base_path, http.socket_group) == (None, "", None)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("listen = ['0.0.0.0:80']", "http.listen[0]: is not a loopback address: without TLS the password"),
        ("listen = ['127.0.0.1:1', '192.0.2.1:80']", "http.listen[1]: is not a loopback address"),
        ("listen = ['[2001:db8::1]:80']\nbehind_proxy = []", "http.listen[0]: is not a loopback address"),
        ("tls_cert = 'x'", "http.tls_cert: also needs tls_key"),
        ("tls_key = 'x'", "http.tls_key: also needs tls_cert"),
        ("socket_group = 'users'", "http.socket_group: has no effect"),
        ("socket = 'x'\nproxy_socket = 'x'", "http.proxy_socket: must be another path than socket"),
        ("behind_proxy = ['0.0.0.0/0']", "would trust every client"),
        ("behind_proxy = ['::/0']", "would trust every client"),
        ("behind_proxy = ['10.0.0.1/8']", "has host bits set"),
        ("behind_proxy = ['proxy']", 'must be a network such as "10.0.0.0/8"'),
        ("hosts = ['example.com:80']", "must be a host name without a port"),
        ("hosts = ['http://example.com']", "must be a host name without a port"),
        ("hosts = ['*']", "must be a host name without a port"),
        ("hosts = ['a.*.com']", "must be a host name without a port"),
        ("hosts = ['x y']", "must be a host name without a port"),
        ("external_url = 'example.com'", 'must be an address such as "https://example.com/jobs"'),
        ("external_url = 'https://u:p@example.com'", "must be an address such as"),
        ("external_url = 'https://example.com/?x=1'", "must be an address such as"),
        ("external_url = 'https://example.com/#x'", "must be an address such as"),
        ("external_url = 'https://example.com:x'", "must be an address such as"),
        ("external_url = 'https://example.com:'", "must be an address such as"),
        ("external_url = 'https://@example.com'", "must be an address such as"),
        ("external_url = 'https://*.example.com'", "must be an address such as"),
        ("external_url = 'ftp://example.com'", "must be an address such as"),
        ("base_path = 'jobs'", 'must be a path such as "/jobs"'),
        ("base_path = '//jobs'", 'must be a path such as "/jobs"'),
        ("base_path = '/a/../b'", 'must be a path such as "/jobs"'),
        ('base_path = "/a\\r\\nX: y"', 'must be a path such as "/jobs"'),
        ("base_path = '/a b'", 'must be a path such as "/jobs"'),
    ],
)
def test_errors(config: Load, text: str, expected: str) -> None:
    """An error has the place and the reason."""
    with pytest.raises(ConfigError) as caught:
        config(f"[http]\n{text}\n")
    assert expected in str(caught.value)


@pytest.mark.parametrize("host", ["127.0.0.1", "127.9.9.9", "::1"])
def test_loopback_addresses(host: str) -> None:
    """A loopback address needs neither TLS nor a proxy."""
    check_exposed(host, tls=False, behind_proxy=False)


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "10.0.0.1", "2001:db8::1", "169.254.1.1"])
def test_public_addresses(host: str) -> None:
    """Any other address needs TLS or a proxy, and is otherwise refused with a remedy."""
    check_exposed(host, tls=True, behind_proxy=False)
    check_exposed(host, tls=False, behind_proxy=True)
    with pytest.raises(InvalidValue) as caught:
        check_exposed(host, tls=False, behind_proxy=False)
    assert "without TLS" in caught.value.message
    assert "tls_cert" in (caught.value.remedy or "")
