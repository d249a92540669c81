"""``[storage] database``."""

from pathlib import Path

import pytest

from supervisor.config.load import load
from supervisor.config.problems import ConfigError
from supervisor.config.value_records import DatabaseServer


def loaded(directory: Path, value: str, environ: dict[str, str] | None = None) -> DatabaseServer | None:
    file = directory / "ringward.toml"
    file.write_text(f"[storage]\ndatabase = {value}\n")
    file.chmod(0o600)
    return load(str(file), environ or {}).storage.database


def test_sqlite_is_the_default(tmp_path: Path) -> None:
    """Without a setting, as with "sqlite", the database is SQLite."""
    assert loaded(tmp_path, '"sqlite"') is None
    (tmp_path / "ringward.toml").write_text("")
    assert load(str(tmp_path / "ringward.toml"), {}).storage.database is None


def test_references_in_the_url(tmp_path: Path) -> None:
    """A URL may contain variables and files; the variables are recorded, so that no run inherits them."""
    (tmp_path / "secret").write_text("from-file\n")
    environ = {"HOST": "db", "WORD": "geheim"}
    server = loaded(tmp_path, '"postgresql://me:${WORD}@${HOST:-x}/${file:secret}"', environ)
    assert server is not None
    assert server.url == "postgresql://me:geheim@db/from-file"
    assert server.variables == ("HOST", "WORD")
    assert "geheim" not in repr(server)


@pytest.mark.parametrize(
    "url",
    [
        "postgresql://me@/runs?host=/run/postgresql",
        "postgresql://me:a%3Ab@one:1,two,[::1]:65535/runs?port=5432",
        "postgresql://[::1],[2001:db8::1]:5433/runs",
        "postgresql://[fe80::1%25eth0]/runs",
        "postgresql://%2Frun%2Fpostgresql/runs",
        "postgresql://db:/runs",
    ],
)
def test_valid_urls(tmp_path: Path, url: str) -> None:
    """URLs with several hosts, sockets or default ports are accepted unchanged."""
    assert loaded(tmp_path, f'"{url}"') == DatabaseServer(url, ())


@pytest.mark.parametrize(
    ("value", "message"),
    [
        ('"postgres://me:geheim@db/x"', "write postgresql://"),
        ('"mysql://me:geheim@db/x"', 'must be "sqlite" or a URL'),
        ('"postgresql://me:geh eim@db/geheim"', "is not a valid URL"),
        ('"postgresql://me:geheim@[db/x"', "is not a valid URL"),
        ('"postgresql://me:geheim@one,[two]/x"', "is not a valid URL"),
        ('"postgresql://me:geheim@one,[::1]5432/x"', "is not a valid URL"),
        ('"postgresql://me:geheim@one[::1]/x"', "is not a valid URL"),
        ('"postgresql://me:geheim@[127.0.0.1]/x"', "is not a valid URL"),
        ('"postgresql://me:geheim#@db/x"', "is not a valid URL"),
        ('["postgresql://me:geheim@db/x"]', 'must be "sqlite" or a URL'),
        ('"postgresql://me:geheim@db:99999/x"', "the port must be from 1 to 65535"),
        ('"postgresql://me:geheim@db:0/x"', "the port must be from 1 to 65535"),
        ('"postgresql://me:geheim@db:abc/x"', "the port must be from 1 to 65535"),
        ('"postgresql://me:geheim@one:5432,[::1]:65536/x"', "the port must be from 1 to 65535"),
        ('"postgresql://me:geheim@/x?host=db&port=5432,65536"', "the port must be from 1 to 65535"),
        ('"postgresql://me:geheim%zz@db/x"', "is not a valid URL"),
    ],
)
def test_invalid_urls(tmp_path: Path, value: str, message: str) -> None:
    """An invalid URL is refused without being quoted."""
    with pytest.raises(ConfigError) as caught:
        loaded(tmp_path, value)
    assert message in str(caught.value)
    assert "geheim" not in str(caught.value)
