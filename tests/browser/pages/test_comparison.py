"""Two runs side by side, in a real browser on a real daemon."""

import re

import pytest
from playwright.sync_api import Page, expect

from tests.browser.axe import complaints_of
from tests.browser.site import Site

PRINTS = """
[tasks.prints]
run = "cat {file}"
log_max_size = "100mb"
params = [{{ name = "DAY", kind = "env", default = "monday" }}]
"""
SOME = 400
MOST = 100_000


def lines(number: int, step: str) -> str:
    return "".join(f"12:00:{at % 60:02} copied {at} as 9f{at:08x}\n" for at in range(number)) + f"{step}\n"


@pytest.fixture
def pair(site: Site) -> tuple[str, str]:
    """Two runs whose logs have the same lines but for numbers, and the last one."""
    file = site.directory / "printed"
    if "tasks.prints" not in site.config.read_text():
        site.configure(PRINTS.format(file=file))
        assert site.request("POST", "/api/daemon/reload").status == 200
    found = []
    for offset, step in ((0, "well done"), (7, "went wrong")):
        text = lines(SOME + offset, step).splitlines(keepends=True)
        file.write_text("".join(text[offset:]))
        answer = site.request(
            "POST", "/api/tasks/prints/run?wait=60&naming=camel", {"params": {"DAY": step.split()[0]}}
        )
        found.append(str(answer.json()["id"]))
    return found[0], found[1]


def test_compare_any_two_runs(page: Page, site: Site, pair: tuple[str, str]) -> None:
    """Two selected runs are compared after three clicks; equal lines are folded, and numbers count on request."""
    site.see(page, "#/runs?task_name=prints")
    for run in pair:
        page.get_by_role("checkbox", name=f"Select run {run}").check()
    page.get_by_role("link", name="Compare", exact=True).click()
    expect(page).to_have_url(re.compile(f"#/run/{pair[1]}\\?compare={pair[0]}"))
    comparison = page.get_by_role("region", name="Comparison")
    expect(comparison.get_by_role("row", name="DAY went well")).to_have_class("differs")
    expect(comparison).to_contain_text("Definition: unchanged")
    marks = comparison.locator(".diff mark")
    expect(marks).to_have_text(["went wrong", "well done"])
    fold = comparison.get_by_role("button", name="equal lines")
    expect(fold).to_have_text(f"{SOME - 3} equal lines")
    assert complaints_of(page) == []
    link = comparison.locator(".diff tr.differs a").first
    expect(link).to_have_attribute("href", f"#/run/{pair[1]}?line={SOME + 1}")
    fold.click()
    expect(comparison.locator(".diff tbody tr")).to_have_count(SOME + 1)
    comparison.get_by_role("checkbox", name="numbers").uncheck()
    comparison.get_by_role("checkbox", name="ids").uncheck()
    expect(marks).to_have_count(2 * 7 + 2)
    comparison.get_by_role("button", name="Close").click()
    expect(comparison).to_have_count(0)


def test_compare_long_logs(page: Page, site: Site, pair: tuple[str, str]) -> None:  # noqa: ARG001 - configures the task
    """Logs of 100,000 lines are compared whole, in a worker of the browser."""
    file = site.directory / "printed"
    runs = []
    for word in ("one", "two"):
        text = [f"line {at}\n" for at in range(MOST - 1)]
        text[MOST // 2] = f"{word}\n"
        file.write_text("".join(text))
        runs.append(site.run_to_end("prints"))
    site.see(page, f"#/run/{runs[1]}?compare={runs[0]}")
    comparison = page.get_by_role("region", name="Comparison")
    expect(comparison.locator(".diff mark")).to_have_text(["two", "one"])
    folds = comparison.get_by_role("button", name="equal lines")
    expect(folds).to_have_text([f"{MOST // 2 - 3:,} equal lines", f"{MOST // 2 - 5:,} equal lines"])
    expect(comparison).not_to_contain_text("Only the first")
    assert any("diff_worker" in worker.url for worker in page.workers)


VALID = """async () => {
    const { keyOf, matches } = await import(new URL("static/js/runs/diff.js", location.href));
    const random = (most) => Math.floor(Math.random() * most);
    const longest = (a, b) => {
        let before = Array(b.length + 1).fill(0);
        for (const one of a) {
            const row = [0];
            b.forEach((other, at) => row.push(one === other ? before[at] + 1 : Math.max(before[at + 1], row[at])));
            before = row;
        }
        return before.at(-1);
    };
    for (let round = 0; round < 2000; round += 1) {
        const kinds = 1 + random(8);
        const list = () => Array.from({ length: random(14) }, () => String(random(kinds)));
        const [a, b] = [list(), list()];
        let [x, y, same] = [0, 0, 0];
        for (const [from, to, length] of matches(a, b)) {
            const equal = a.slice(from, from + length).join() === b.slice(to, to + length).join();
            if (from < x || to < y || !equal || length < 1) return { a, b };
            [x, y, same] = [from + length, to + length, same + length];
        }
        if (x > a.length || y > b.length || (longest(a, b) > 0 && !same)) return { a, b };
    }
    const ignored = (text, ...what) => keyOf(text, what);
    return [
        ignored("2026-11-28T10:00:00.1Z a", "times") === ignored("2025-01-02 11:22 a", "times"),
        ignored("id 9f8a7b6c done", "ids") === ignored("id 01M8J5RQ5VPWV3B9CPR3C12F08 done", "ids"),
        ignored("took 5 ms", "numbers") === ignored("took 71 ms", "numbers"),
        ignored("took 5 ms", "times", "ids") !== ignored("took 71 ms", "times", "ids"),
        ignored("decaded effaced", "ids") === "decaded effaced",
    ];
}"""


def test_parts_of_a_difference(page: Page, site: Site) -> None:
    """The equal parts of two lists ascend and are equal; times, ids and numbers are ignored on request."""
    site.see(page, "#/")
    assert page.evaluate(VALID) == [True] * 5
