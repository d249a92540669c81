"""Real proxies that run the samples of deploy/, with other ports, paths and certificates only."""

import os
import signal
import socket
import subprocess
from pathlib import Path

import psutil

from tests.support.host_features import require
from tests.support.paths import ROOT
from tests.support.ports import free_port
from tests.support.waiting import until

NGINX = ROOT / "deploy/nginx/ringward.conf"
CADDY = ROOT / "deploy/caddy/Caddyfile"
CERTIFICATE, KEY = (ROOT / "tests/support/tls" / name for name in ("cert.pem", "key.pem"))

_NGINX = """
daemon off;
{user}
pid {place}/nginx.pid;
error_log {place}/error.log;
events {{}}
http {{
    access_log off;
    client_body_temp_path {place}/body;
    proxy_temp_path {place}/proxy;
    fastcgi_temp_path {place}/fastcgi;
    uwsgi_temp_path {place}/uwsgi;
    scgi_temp_path {place}/scgi;
    gzip on;
    gzip_proxied any;
    gzip_types *;
    {sample}
}}
"""
"""Configuration around the sample, with settings that the sample must cope with."""
_CADDY = "{\n\tadmin off\n\tauto_https disable_redirects\n\tskip_install_trust\n}\n"
"""Without `skip_install_trust`, it would add its own authority to the certificates that the host trusts."""


def http_settings(sample: Path) -> str:
    """Return the keys of [http] that a sample requires, without the address."""
    lines = [line[2:].strip() for line in sample.read_text().splitlines() if line.startswith("#     ")]
    assert lines[0] == "[http]"
    return "\n".join(line for line in lines[1:] if not line.startswith("listen"))


def changed(sample: Path, *changes: tuple[str, str]) -> str:
    """Return the sample with other ports and paths."""
    text = sample.read_text()
    for old, new in changes:
        assert text.count(old) == 1, old
        text = text.replace(old, new)
    return text


def _nginx(place: Path, port: int, upstream: str) -> str:
    sample = changed(
        NGINX,
        ("listen 443 ssl", f"listen 127.0.0.1:{port} ssl"),
        ("/etc/ssl/certs/jobs.example.com.pem", f'"{CERTIFICATE}"'),
        ("/etc/ssl/private/jobs.example.com.key", f'"{KEY}"'),
        ("proxy_pass http://127.0.0.1:7464", f"proxy_pass http://{upstream}"),
    )
    # Workers of another user could not enter the directories of a test.
    return _NGINX.format(place=place, sample=sample, user="user root;" if os.geteuid() == 0 else "")


def _caddy(port: int, upstream: str) -> str:
    site = f'https://localhost:{port} {{\n\tbind 127.0.0.1\n\ttls "{CERTIFICATE}" "{KEY}"\n'
    sample = changed(
        CADDY, ("jobs.example.com {\n", site), ("reverse_proxy 127.0.0.1:7464", f"reverse_proxy {upstream}")
    )
    return _CADDY + sample


class Proxy:
    """A proxy in front of a daemon at `upstream`."""

    def __init__(self, name: str, place: Path, upstream: str) -> None:
        self.name = name
        self.port = free_port()
        self.output = place / "output"
        program = require(name)
        config = place / "config"
        config.write_text(_nginx(place, self.port, upstream) if name == "nginx" else _caddy(self.port, upstream))
        arguments = {"nginx": ["-c", str(config)], "caddy": ["run", "--config", str(config), "--adapter", "caddyfile"]}
        with self.output.open("wb") as output:
            self.process = subprocess.Popen(
                [program, *arguments[name]],
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                env={**os.environ, "HOME": str(place), "XDG_DATA_HOME": str(place), "XDG_CONFIG_HOME": str(place)},
            )
        try:
            until(self._listens, f"{name} to listen")
        except BaseException:  # in any state, no other process ends it
            self.process.kill()
            self.process.wait()
            raise

    @property
    def url(self) -> str:
        """Return the address for browsers."""
        return f"https://localhost:{self.port}"

    def _listens(self) -> bool:
        assert self.process.poll() is None, self.output.read_text()
        with socket.socket() as sock:
            return sock.connect_ex(("127.0.0.1", self.port)) == 0

    def workers(self) -> set[int]:
        """Return the worker processes of nginx; caddy has none."""
        own = psutil.Process(self.process.pid)
        return {child.pid for child in own.children()} if self.name == "nginx" else set()

    def reload(self) -> None:
        """Reload the configuration of nginx; new workers serve later requests."""
        before = self.workers()
        self.process.send_signal(signal.SIGHUP)
        until(lambda: self.workers() - before, "another worker")

    def end(self) -> None:
        """Stop the proxy, even if clients are connected."""
        self.process.terminate()
        self.process.wait(60)
