"""A real PostgreSQL server for tests: in a temporary directory, on a Unix socket only, stopped by its pid."""

import os
import pwd
import shutil
import signal
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from glob import glob
from itertools import count
from pathlib import Path
from typing import Any

import psycopg

from tests.support.waiting import until

PASSWORD = "wrapped in tinfoil"
"""Part of every URL, although the server trusts every client of its socket: nothing may print it."""
_EMPTY = """
DO $$ DECLARE used text; BEGIN
    SELECT string_agg(oid::regclass::text, ', ') INTO used FROM pg_class
        WHERE relnamespace = '{0}'::regnamespace AND relkind = 'r' AND pg_relation_size(oid) > 0
        AND relname NOT IN ('schema_migration', 'schema_addition', 'ringward_writer');
    IF used IS NOT NULL THEN EXECUTE 'TRUNCATE ' || used; END IF;
    PERFORM setval(oid::regclass, 1, false) FROM pg_class
        WHERE relnamespace = '{0}'::regnamespace AND relkind = 'S';
END $$
"""
_SETTINGS = (
    *("listen_addresses=", "fsync=off", "max_connections=300", "shared_buffers=32MB", "lc_messages=C"),
    "autovacuum=off",  # a test sets the planner's statistics of a table
)


def programs() -> Path | None:
    """Return the directory of initdb and postgres, or None."""
    for name in ("initdb", "postgres"):
        if (directory := shutil.which(name)) and (there := Path(directory).resolve().parent / "initdb").exists():
            return there.parent
    return max(map(Path, glob("/usr/lib/postgresql/*/bin")), default=None, key=lambda path: int(path.parent.name))


class PostgresServer:
    """A server; its databases belong to the test that requested them."""

    def __init__(self, where: Path) -> None:
        self._programs = where
        # The path of a Unix socket is at most 107 bytes, which pytest's directories can exceed.
        self.directory = tempfile.mkdtemp(prefix="rw-pg-")
        self._as_user: dict[str, Any] = {}
        if os.geteuid() == 0:  # initdb refuses to run as root
            user = next(user_entry for user_entry in map(_user, ("postgres", "nobody")) if user_entry is not None)
            os.chown(self.directory, user.pw_uid, user.pw_gid)
            self._as_user = {"user": user.pw_uid, "group": user.pw_gid, "extra_groups": []}
        self._process: subprocess.Popen[bytes] | None = None
        self._names = (f"test{number}" for number in count(1))
        self._spare: list[str] = []
        self._run("initdb", "-D", self._data, "-U", "ringward", "--auth=trust", "--no-locale", "-E", "UTF8", "-N")
        self.start()

    @property
    def _data(self) -> str:
        return f"{self.directory}/data"

    def _run(self, program: str, *arguments: str) -> None:
        done = subprocess.run(
            [self._programs / program, *arguments], capture_output=True, text=True, cwd=self.directory, **self._as_user
        )
        assert done.returncode == 0, done.stderr

    def start(self) -> None:
        """Start the server and wait until it answers."""
        settings = [part for setting in _SETTINGS for part in ("-c", setting)]
        with open(f"{self.directory}/log", "ab") as log:
            self._process = subprocess.Popen(
                [self._programs / "postgres", "-D", self._data, "-k", self.directory, *settings],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                cwd=self.directory,
                start_new_session=True,
                **self._as_user,
            )
        until(self._answers, "the PostgreSQL server")

    def _answers(self) -> bool:
        assert self._process is not None
        if self._process.poll() is not None:
            raise AssertionError(f"the server ended: {Path(self.directory, 'log').read_text()}")
        try:
            self.ask("SELECT 1")
        except psycopg.OperationalError:
            return False
        return True

    def stop(self, number: signal.Signals = signal.SIGINT) -> None:
        """Stop the server: SIGINT disconnects its clients, SIGQUIT imitates a crash."""
        if self._process is not None:
            self._process.send_signal(number)
            self._process.wait(60)
            self._process = None

    def close(self) -> None:
        """Stop the server and remove its directory."""
        self.stop()
        shutil.rmtree(self.directory, ignore_errors=True)

    def url(self, name: str) -> str:
        """Return the URL of one of its databases."""
        return f"postgresql://ringward:{PASSWORD.replace(' ', '%20')}@/{name}?host={self.directory}"

    def ask(self, sql: str, name: str = "postgres") -> list[Any]:
        """Execute a statement as the superuser."""
        with psycopg.connect(self.url(name), autocommit=True) as connection:
            cursor = connection.execute(sql)
            return cursor.fetchall() if cursor.description else []

    def create(self) -> str:
        """Create a schema, which is faster than a database; return its URL."""
        name = next(self._names)
        self.ask(f"CREATE SCHEMA {name}")
        return self.within(name)

    def within(self, schema: str) -> str:
        """Return the URL of a schema, which need not exist."""
        return f"{self.url('postgres')}&options=-csearch_path%3D{schema}"

    def drop(self, url: str) -> None:
        """Drop a schema that nothing uses any more."""
        self.ask(f"DROP SCHEMA {_name(url)} CASCADE")

    def lend(self) -> str:
        """Return the URL of a schema with empty tables, or with none."""
        return self._spare.pop() if self._spare else self.create()

    def take_back(self, url: str) -> None:
        """Empty the tables of a returned schema, which takes a tenth of the time of creating them."""
        self.ask(_EMPTY.format(_name(url)))
        self._spare.append(url)

    @contextmanager
    def asking_passwords(self) -> Iterator[None]:
        """Require the password, which all our URLs have, of connections inside the context."""
        rules = Path(self._data, "pg_hba.conf")
        before = rules.read_text()
        self.ask(f"ALTER ROLE ringward PASSWORD '{PASSWORD}'")
        rules.write_text("local all all scram-sha-256\n")
        self.ask("SELECT pg_reload_conf()")
        try:
            yield
        finally:
            rules.write_text(before)
            self.ask("SELECT pg_reload_conf()")

    def hang_up(self) -> None:
        """End all sessions, like a restart."""
        self.ask("SELECT pg_terminate_backend(pid, 60000) FROM pg_stat_activity WHERE application_name = 'ringward'")


def _name(url: str) -> str:
    """Return the name of the schema."""
    return url.rpartition("%3D")[2]


def _user(name: str) -> pwd.struct_passwd | None:
    try:
        return pwd.getpwnam(name)
    except KeyError:
        return None
