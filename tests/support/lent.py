"""A daemon that tests share. Each test gets it with its own configuration and without runs."""

import tempfile
from pathlib import Path
from typing import Any, Self

from tests.support.daemon import Daemon
from tests.support.waiting import until


class Lent(Daemon):
    """A daemon that restarts if [daemon] or [http] change.

    Otherwise it reloads, which takes a twentieth of the time.
    """

    def __init__(self, place: Path) -> None:
        self._place = place
        self._tables: tuple[str, str] | None = None
        """The tables [daemon] and [http] of the running daemon, as given to `write`."""
        self._head = ""
        super().__init__(self._another())

    def _another(self) -> Path:
        return Path(tempfile.mkdtemp(dir=self._place))

    @property
    def _runs(self) -> bool:
        return self.process is not None and self.process.poll() is None

    def write(self, text: str, *, daemon: str = "", http: str = "") -> None:
        if self._runs and self._tables == (daemon, http):
            self.config.write_text(self._head + text)
            self._output_before = self.output.stat().st_size
            return
        if self._tables is not None:
            self._give_up()
        super().write("", daemon=daemon, http=http)
        self._tables, self._head = (daemon, http), self.config.read_text()
        self.config.write_text(self._head + text)

    def start(self) -> Self:
        return self._reloaded() if self._runs else super().start()

    def take_back(self) -> None:
        """Clean up for the next test; replace a daemon that has ended or cannot be cleaned up."""
        if not self._runs:
            self._give_up()
            return
        try:
            self.write("", **dict(zip(("daemon", "http"), self._tables or (), strict=True)))
            self._reloaded()
            until(self._all_ended, "all runs to end")
            self._posted("/api/runs/bulk/delete", {"match_all": True})
        except BaseException:
            self._give_up()
            raise

    def clean(self) -> None:
        super().clean()
        self._tables = None

    def _give_up(self) -> None:
        if self._runs:
            self.stop()
        self.clean()
        super().__init__(self._another())

    def _reloaded(self) -> Self:
        self._posted("/api/daemon/reload", None)
        return self

    def _all_ended(self) -> bool:
        going_on = self.get("/api/runs?status=pending,running&limit=1000").json()["runs"]
        for run in going_on:
            self.request("POST", f"/api/runs/{run['id']}/stop?force=true")
        return not going_on

    def _posted(self, path: str, body: Any) -> None:
        answer = self.request("POST", path, body)
        assert answer.status in (200, 204), answer.body
