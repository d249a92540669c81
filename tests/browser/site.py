"""The daemon behind the browser tests."""

import os
import re
import time

from playwright.sync_api import Locator, Page, expect

from store.database import open_writer
from store.runs.ids import new_ulid
from store.runs.writes import insert_run
from tests.store.making import make_run
from tests.support.daemon import PASSWORD, Daemon
from tests.support.waiting import until

CONFIG = r"""
[tasks.backup]
description = "Nightly backup of the database"
group = "Maintenance"
tags = ["db"]
cron = "30 2 * * *"
run = "echo copying; echo 'disk full' >&2; test -e {ok}"

[tasks.colours]
group = "Maintenance"
run = '''printf '\033[32mgreen\033[0m plain\n<b>bold</b> & <script>alert(1)</script>\n' '''

[tasks.paints]
run = '''
printf '\033[97;41m ERROR \033[0m \033[7minverse\033[0m \033[30mblack\033[2m dim\033[0m\n'
printf '\033[31mred begins\nand goes on\033[0m here\n'
echo 'see (https://example.org/a?b=(c)), or http://127.0.0.1:1/x.'
printf '\033]8;;https://example.org/manual\033\\the manual\033]8;;\033\\ and '
printf '\033]8;;javascript:alert(1)\007no link\033]8;;\007\n'
printf '\033]0;a title\007\033]52;c;aGVsbG8=\033\\\033(Bonly text\033[2K\n'
printf '\033[38;5;208morange\033[38;2;10;10;10m nearly black\033[48:2::250:250:250m on white\033[0m\n'
'''

[tasks.old]
run = "true"
keep_for = "800d"

[tasks.long]
run = "seq 1 200000"
log_max_size = "100mb"

[tasks.progress]
run = '''for i in 1 2 3 4 5; do printf '\rcopying %s of 5' $i; sleep 0.2; done; echo'''

[tasks.talks]
description = "Prints what is written into its pipe"
run = "cat {pipe}"

[tasks.tries]
run = "exit 7"
retry_attempts = 1
retry_delay = "10ms"

[tasks.{long_name}]
run = "true"

[tasks.levels]
run = '''
cat <<END
INFO starting
2026-11-26 11:00:00 WARN slow network
{"level":"error","msg":"cannot connect","nested":{"tries":[1,2]}}
{"severity":"INFO","message":"done"}
Traceback (most recent call last):
  File "/srv/app/main.py", line 3, in <module>
    main()
  File "/srv/app/main.py", line 2, in main
    raise ValueError("no")
ValueError: no
level=debug poll
pg_dump: error: query failed
END
seq 13 4000
echo ERROR giving up
'''

[tasks.tries-to-say]
run = "echo nothing; echo it says so"

[tasks.report]
run = 'echo "$1 for $WHO"'
params = [
  { name = "month", kind = "arg", required = true, pattern = "[0-9]{4}-[0-9]{2}", description = "As in 2026-11" },
  { name = "WHO", kind = "env", default = "everybody", choices = ["everybody", "nobody"] },
]

[tasks.hidden]
api_trigger = false
every = "1h"
run = "true"

[services.web]
description = "Shop"
group = "Shop"
instances = 2
run = "echo serving; exec sleep 3600"
graceful_stop = "1s"

[services.waits]
group = "Shop"
depends_on = [{ name = "broken", until = "ready" }]
run = "exec sleep 3600"

[services.shaky]
group = "Shop"
run = "test -e {fallen} && exec sleep 3600; touch {fallen}; exit 4"
restart_delay = "1ms"
flap_restarts = 0
flap_window = "1d"

[services.broken]
group = "Shop"
run = "echo cannot >&2; exit 1"
restart_delay = "1ms"
restart_attempts = 1
"""


STATES = {"broken": "fatal", "shaky": "running", "waits": "starting", "web": "running"}
"""The states that the services reach and keep; until then, runs of some of them fail."""
LONG_NAME = "n" * 100
PAST = 56
"""Days, each with a run of the task `old`; the last one was yesterday."""
_DAY_MS = 86_400_000


def choose_statuses(place: Page | Locator, *words: str) -> None:
    """Show only runs with these statuses."""
    place.get_by_role("button", name=re.compile("^Status: ")).click()
    for word in words:
        place.get_by_role("checkbox", name=word, exact=True).check()
    place.get_by_role("button", name=re.compile("^Status: ")).click()


class Site(Daemon):
    """A daemon with tasks, services and a few runs."""

    def begin(self) -> None:
        """Configure and start the daemon, wait for its services, and run each task whose ended run a test needs."""
        self.ok = self.directory / "ok"
        self.fallen = self.directory / "fallen"
        self.pipe = self.directory / "pipe"
        self.pipe.touch()
        self.configure()
        self._remember()
        self.start()
        until(self._has_settled, "the services to reach their states")
        self.done = {name: self.run_to_end(name) for name in ("backup", "colours", "long", "paints", "progress")}

    def configure(self, more: str = "") -> None:
        """Write the configuration, with `more` at its end and the same address as before."""
        text = (
            CONFIG.replace("{ok}", str(self.ok))
            .replace("{long_name}", LONG_NAME)
            .replace("{pipe}", str(self.pipe))
            .replace("{fallen}", str(self.fallen))
            + more
        )
        if not self.config.exists():
            self.write("", http='public = ["web"]')
            self.tables = self.config.read_text()
        self.config.write_text(self.tables + text)

    def _has_settled(self) -> bool:
        services = [unit for unit in self.get("/api/tasks").json()["items"] if unit["kind"] == "service"]
        flapping = [unit["name"] for unit in services if unit["flapping"]]
        return {unit["name"]: unit["state"] for unit in services} == STATES and flapping == ["shaky"]

    def _remember(self) -> None:
        """Store the history before the first start."""
        self.data.mkdir(mode=0o700)
        now_ms = time.time_ns() // 1_000_000
        database = open_writer(str(self.data / "ringward.db"))
        with database.transaction():
            for ago in range(PAST, 0, -1):
                at = now_ms - ago * _DAY_MS
                ended = {"status": "ended", "end_reason": "succeeded", "exit_code": 0, "ended_at": at + 20}
                insert_run(database, make_run(id=new_ulid(at), task_name="old", created_at=at, started_at=at, **ended))
            outages = {1: 200_000, 30: _DAY_MS // 2}  # days ago, ms
            for ago in range(1, 61):
                for state, ms in (("backoff", outages.get(ago, 0)), ("running", _DAY_MS - outages.get(ago, 0))):
                    day = now_ms // _DAY_MS - ago
                    database.execute("INSERT INTO instance_days VALUES ('web', ?, 0, ?, ?)", [day, state, ms])
        database.close()

    def mkfifo(self) -> None:
        """Create a pipe for the output of the task `talks`."""
        os.mkfifo(self.pipe)

    def run_to_end(self, task: str) -> str:
        """Run `task` to its end; return the id of the run."""
        answer = self.request("POST", f"/api/tasks/{task}/run?wait=60&naming=camel")
        run = answer.json()
        assert run["status"] == "ended", run
        return str(run["id"])

    @property
    def url(self) -> str:
        """The URL for browsers."""
        line = next(line for line in self.config.read_text().splitlines() if line.startswith("listen"))
        return f"http://{line.split(chr(34))[1]}/"

    def enter(self, page: Page) -> None:
        """Log in."""
        page.goto(self.url)
        page.get_by_label("Password").fill(PASSWORD)
        page.get_by_role("button", name="Log in").click()
        expect(page.get_by_role("navigation", name="Pages", exact=True)).to_be_visible()

    def see(self, page: Page, address: str) -> None:
        """Go to a page of the dashboard: ``#/runs``."""
        page.goto(f"{self.url}{address}")
        expect(page.get_by_role("navigation", name="Pages", exact=True)).to_be_visible()
