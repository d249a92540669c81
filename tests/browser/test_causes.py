"""Causes of failed runs in lists and on pages."""

import os
from collections.abc import Iterator

import pytest
from playwright.sync_api import Page, expect

from tests.browser.axe import complaints_of
from tests.browser.site import Site
from tests.support.waiting import until

DIFFERS = """
[tasks.differs]
run = '''
echo "begin at $(date +%s%N)"
echo "copied $$ rows"
test -e {ok} && echo "all is well" || {{ echo "table is locked" >&2; exit 3; }}
'''
params = [{{ name = "day", kind = "env", default = "monday" }}]
"""

CHANGES = """
[tasks.changes]
run = "exit $CODE"
timeout = "5m"
env = { CODE = "0", KEY = "first-secret" }
env_public = ["CODE"]
"""
CHANGED_KEY = ('timeout = "5m"', "queue_priority = 7")


@pytest.fixture(scope="module", autouse=True)
def _differing(site: Site) -> Iterator[None]:
    site.configure(DIFFERS.format(ok=site.ok))
    site.request("POST", "/api/daemon/reload")
    yield
    site.ok.unlink(missing_ok=True)


@pytest.mark.parametrize("size", ["page", "phone"])
def test_lists_have_the_cause(request: pytest.FixtureRequest, site: Site, size: str) -> None:
    """The overview and the notifications show the line that says why a run failed."""
    page: Page = request.getfixturevalue(size)
    site.see(page, "#/")
    entry = page.get_by_role("region", name="Needs attention").get_by_role("listitem").filter(has_text="backup")
    expect(entry.get_by_role("link", name="disk full")).to_be_visible()
    site.see(page, "#/notifications")
    entry = page.get_by_role("listitem").filter(has_text="backup").first
    expect(entry.get_by_role("link", name="disk full")).to_be_visible()


def test_runs_have_the_cause(page: Page, site: Site) -> None:
    """The list of runs shows the cause of each failure, and requests all of them at once."""
    urls: list[str] = []
    page.on("request", lambda request: urls.append(request.url))
    site.see(page, "#/runs?status=failed")
    row = page.get_by_role("row").filter(has_text="backup")
    expect(row.get_by_role("link", name="disk full")).to_be_visible()
    # The page loads again once its event stream is open.
    assert len({url for url in urls if "/failures?" in url}) == 1


def test_verdict_links_to_the_line(page: Page, site: Site) -> None:
    """The verdict shows the cause, which is a link to its line of the log."""
    site.see(page, f"#/run/{site.done['backup']}")
    verdict = page.get_by_role("region", name="Verdict")
    verdict.get_by_role("link", name="disk full").click()
    expect(page.get_by_role("log").locator(".target .x")).to_have_text("disk full")
    assert "line=2" in page.url


def test_attempts_are_one_row(page: Page, site: Site) -> None:
    """The attempts of a run are one row of the list, which unfolds and is selected as a whole."""
    site.run_to_end("tries")
    until(lambda: site.get("/api/tasks/tries/runs?status=ended").json()["total"] == 2, "the retry")
    site.see(page, "#/runs?task_name=tries")
    rows = page.get_by_role("table").locator("tbody tr")
    expect(rows).to_have_count(1)
    rows.get_by_role("checkbox").check()
    expect(page.get_by_role("region", name="Selection")).to_contain_text("2 selected")
    page.get_by_role("button", name="2 attempts").click()
    expect(rows).to_have_count(2)
    expect(rows.nth(1).get_by_role("checkbox")).to_be_checked()
    rows.nth(1).get_by_role("checkbox").uncheck()
    expect(page.get_by_role("region", name="Selection")).to_contain_text("1 selected")
    page.get_by_role("button", name="2 attempts").click()
    expect(rows).to_have_count(1)


def test_failure_beside_the_last_success(page: Page, site: Site) -> None:
    """A failure is compared with the last success: duration, parameters, and the first difference of the logs."""
    site.ok.touch()
    site.request("POST", "/api/tasks/differs/run?wait=60", {"params": {"day": "sunday"}})
    site.ok.unlink()
    site.see(page, f"#/run/{site.run_to_end('differs')}")
    good = page.get_by_role("region", name="Last good run", exact=True)
    expect(good.get_by_role("row", name="day monday sunday")).to_have_class("differs")
    good.get_by_role("button", name="Compare logs").click()
    expect(good.locator(".diff mark")).to_have_text(["table is locked", "all is well"])
    expect(good).to_contain_text("1 difference, apart from times, ids, and numbers.")
    expect(good).to_contain_text("Definition: unchanged")
    assert complaints_of(page) == []


@pytest.mark.parametrize("size", ["page", "phone"])
def test_definition_beside_that_of_the_last_success(request: pytest.FixtureRequest, site: Site, size: str) -> None:
    """A failure shows each key of the definition that changed since the last success; values of secrets stay hidden."""
    page: Page = request.getfixturevalue(size)
    for text in (
        CHANGES,
        CHANGES.replace('CODE = "0"', 'CODE = "3"').replace("first-", "second-").replace(*CHANGED_KEY),
    ):
        site.configure(DIFFERS.format(ok=site.ok) + text)
        assert site.request("POST", "/api/daemon/reload").status == 200
        run_id = site.run_to_end("changes")
    site.kill_helper("ringward scheduler")
    site.see(page, f"#/run/{run_id}")
    table = page.get_by_role("table", name="Definition: 3 changes")
    expect(table.locator("tbody tr")).to_have_text(["env.CODE03", "queue_prioritydefault7", "timeout5mdefault"])
    assert "secret" not in page.content()
    assert complaints_of(page) == []


def test_starter_of_a_run(page: Page, site: Site) -> None:
    """A run and the list of runs name the person and the way: the dashboard, the command line, or neither."""
    site.see(page, "#/task/colours")
    page.get_by_role("button", name="Run", exact=True).first.click()
    expect(page.get_by_role("cell", name="admin (dashboard)").first).to_be_visible()
    assert site.cli("run", "colours", "--detach").returncode == 0
    uid = f"uid {os.getuid()} (command line)"
    row = page.get_by_role("row").filter(has_text=uid)
    row.get_by_role("link", name="Run ").first.click()
    expect(page.get_by_role("region", name="Run", exact=True)).to_contain_text(f"Started by{uid}")
    site.see(page, f"#/run/{site.done['colours']}")
    expect(page.get_by_role("region", name="Run", exact=True)).to_contain_text(f"Started byuid {os.getuid()}Created")
    assert complaints_of(page) == []


def test_acknowledged_failure(page: Page, site: Site) -> None:
    """An acknowledged failure leaves Needs attention, shows its note, and returns when it is withdrawn."""
    site.see(page, "#/")
    attention = page.get_by_role("region", name="Needs attention")
    entry = attention.locator(":scope > ul > li").filter(has=page.get_by_role("link", name="backup", exact=True))
    entry.get_by_role("button", name="Acknowledge").click()
    page.get_by_label("Note").fill("a bigger disk is ordered")
    assert complaints_of(page) == []
    page.get_by_role("dialog").get_by_role("button", name="Acknowledge").click()
    expect(entry).to_have_count(0)
    attention.get_by_text("1 acknowledged").click()
    expect(attention).to_contain_text("until it fails again: a bigger disk is ordered")
    assert complaints_of(page) == []
    site.see(page, "#/task/backup")
    expect(page.get_by_role("main")).to_contain_text("a bigger disk is ordered")
    page.get_by_role("button", name="Undo").click()
    expect(page.get_by_role("button", name="Undo")).to_have_count(0)
    site.see(page, "#/")
    expect(entry).to_have_count(1)
