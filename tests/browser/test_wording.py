"""The words of the dashboard, in a real browser on a real daemon."""

import re
from pathlib import Path

import pytest
from playwright.sync_api import Browser, Page, StorageState, expect

from api.operation_table import OPERATIONS
from api.resources.pages import FOLDER
from tests.browser.conftest import opened
from tests.browser.site import Site
from tests.browser.test_screen_sizes import PAGES

ENDS = """
[tasks.never]
run = ["/does/not/exist"]

[tasks.slow]
run = "sleep 1000"
timeout = "10ms"

[tasks.floods]
run = "yes"
log_max_size = "512kb"
log_on_full = "kill"

[tasks.once]
run = "cat {pipe}"
on_overlap = "skip"

[tasks.full]
run = "cat {pipe}"
queue_max = 0

[services.deaf]
run = "exec sleep 3600"
ready = {{ http = "http://127.0.0.1:9/", timeout = "20ms" }}
"""
TEXTS = """() => {
    const shown = (one) => (one.getClientRects().length || one.matches("option"))
        && !one.closest("script, style, .log-row, .definition");
    const found = [];
    const walk = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
    while (walk.nextNode()) if (shown(walk.currentNode.parentElement)) found.push(walk.currentNode.data);
    for (const one of document.querySelectorAll("[title], [aria-label], [placeholder]")) {
        for (const name of ["title", "aria-label", "placeholder"]) found.push(one.getAttribute(name) ?? "");
    }
    return found;
}"""
"""All text of a page, except the output of runs, and definitions, which are in the words of the configuration."""
API_WORDS = re.compile(
    r"timeout\b(?= by| with|:|$)|log_overflow|queue_full|dst_skipped|daemon_stopped|start_failed"
    r"|^(?:cron|api|startup)$|\b(?:query|body|path)\.|rejected \(|\b[a-z]+[A-Z]\w*"
)


def api_words(page: Page) -> list[str]:
    """Return the texts of a page that contain words of the API."""
    value = page.evaluate(TEXTS)
    return [text for text in value if API_WORDS.search(text)]


@pytest.fixture(scope="module")
def ends(site: Site) -> dict[str, str]:
    """A run for each way to end that has a name with an underscore, by task."""
    site.pipe.unlink()
    site.mkfifo()
    site.configure(ENDS.format(pipe=site.pipe))
    assert site.request("POST", "/api/daemon/reload").status == 200
    for name in ("once", "full"):
        site.trigger(name)
    by_name = {name: site.run_to_end(name) for name in ("never", "slow", "floods", "once", "full")}
    assert site.request("POST", "/api/runs/bulk/delete", {"filter": {"status": "?"}}).status == 422
    assert site.request("POST", "/api/tasks/hidden/run").status == 403
    return by_name


def test_api_words_stay_off_pages(page: Page, site: Site, ends: dict[str, str]) -> None:
    """No page shows a word of the API, such as the name of an end reason, an operation, a parameter or a status."""
    runs = [f"#/run/{run_id}" for run_id in ends.values()]
    for address in (*PAGES, *(f"#/task/{name}" for name in (*ends, "deaf", "report")), *runs):
        site.see(page, address)
        expect(page.get_by_role("main").get_by_role("heading", level=1)).to_have_count(1)
        expect(page.locator(".skeleton")).to_have_count(0)
        assert api_words(page) == [], address


def test_refusals_name_fields_in_words(page: Page, site: Site, complaints: list[str]) -> None:
    """The message of a rejected request names its field in words, not as a path of the API."""
    site.see(page, "#/runs?exit_code_min=never")
    expect(page.get_by_role("alert")).to_contain_text("exit code min: ")
    assert api_words(page) == []
    complaints.clear()


@pytest.mark.usefixtures("ends")
def test_definition_as_configured(page: Page, site: Site) -> None:
    """A definition has keys and values as in the configuration file, even in tables."""
    site.see(page, "#/task/deaf")
    definition = page.get_by_role("region", name="Definition")
    expect(definition).to_contain_text('{ http = "http://127.0.0.1:9/", every = ')
    expect(definition).to_contain_text("log_max_size100 MB")
    site.see(page, "#/task/report")
    expect(definition).to_contain_text('[{ name = "month", kind = "arg", ')


RUN = "01M8J5RQ5VPWV3B9CPR3C12F08"


def test_sentences_have_local_times_and_no_ids(browser: Browser, session: StorageState, site: Site) -> None:
    """A notification shows the times of its text by the reader's clock, and no id of its run."""
    about = {"severity": "warn", "title": "t", "count": 1, "createdAt": "2026-11-01T02:00:00.000Z", "runId": RUN}
    about["lastOccurredAt"] = about["createdAt"]
    bodies = (
        f"Run {RUN}: no output for 5m. It continues.",
        "The scheduled time 2026-02-03T11:30:00.000Z was skipped: another run was active or waiting.",
    )
    items = [{**about, "id": number, "kind": "run.silent", "body": body} for number, body in enumerate(bodies)]
    context = browser.new_context(storage_state=session, locale="en-GB", timezone_id="Asia/Tokyo")
    page = opened(context)
    page.route("**/api/notifications?*", lambda route: route.fulfill(json={"items": items}))
    site.see(page, "#/notifications")
    entries = page.get_by_role("region", name="Notifications").get_by_role("listitem")
    expect(entries.first).to_contain_text("No output for 5m. It continues.")
    expect(entries.last).to_contain_text(re.compile("The scheduled time .*20:30.* was skipped"))
    assert not re.search(r"\dZ|01M8", entries.first.inner_text() + entries.last.inner_text())
    context.close()


@pytest.mark.usefixtures("ends")
def test_toast_of_a_refused_run(page: Page, site: Site) -> None:
    """A run that is rejected at once is reported in words."""
    site.see(page, "#/task/full")
    page.get_by_role("button", name="Run", exact=True).click()
    expect(page.get_by_text("full did not start: queue full")).to_be_visible()


def test_audit_has_a_name_for_each_action() -> None:
    """The audit has a name for each operation that it records."""
    source = Path(FOLDER, "js/operations.js").read_text()
    table = re.search(r"const ACTIONS = \{(.*?)\n\}", source, re.DOTALL)
    assert table
    named = set(re.findall(r"^  (\w+):", table[1], re.MULTILINE))
    assert named == {operation.id for operation in OPERATIONS if operation.method != "GET"}
