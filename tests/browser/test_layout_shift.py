"""Layout shift of pages while they load."""

import re
from collections.abc import Callable
from contextlib import suppress

import pytest
from playwright.sync_api import Browser, Page, Route, StorageState, ViewportSize, expect

from tests.browser.conftest import opened
from tests.browser.site import Site
from tests.support.waiting import until

MOST = 0.02
OBSERVED = """
window.shifts = [];
new PerformanceObserver((list) => {
    for (const one of list.getEntries()) {
        const told = (rect) => `${rect.y}, height ${rect.height}`;
        const moved = one.sources.map(({ node, previousRect, currentRect }) =>
            `${node?.outerHTML?.slice(0, 90)}: ${told(previousRect)} to ${told(currentRect)}`);
        if (!one.hadRecentInput) window.shifts.push([one.value, moved]);
    }
}).observe({ type: "layout-shift", buffered: true });
"""
DRAWN = "() => new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(() => setTimeout(done))))"
SIZES: dict[str, ViewportSize] = {"desk": {"width": 1280, "height": 900}, "phone": {"width": 390, "height": 844}}


def one_by_one(page: Page, loaded: Callable[[], bool]) -> None:
    """Release the held answers of the API, one per frame, until the page is loaded."""
    held_routes: list[Route] = []

    def hold(route: Route) -> None:
        held_routes.append(route)

    page.route(re.compile(r"/api/(?!.*stream|auth)"), hold)
    page.reload()

    def next_one() -> bool:
        page.evaluate(DRAWN)
        if held_routes:
            with suppress(Exception):  # the page has asked for something else meanwhile
                held_routes.pop(0).continue_()
            return False
        return loaded()

    until(next_one, "the page to be loaded")
    page.unroute_all(behavior="ignoreErrors")


def test_figures_of_the_host_move_nothing(phone: Page, site: Site) -> None:
    """The first measurement of the host does not move the content below it, even on a phone."""
    held_routes: list[Route] = []

    def hold(route: Route) -> None:
        held_routes.append(route)

    phone.route("**/api/events/stream", hold)
    site.see(phone, "#/")
    host = phone.get_by_role("region", name="Host")
    expect(host).to_contain_text("Sampled every five seconds")
    height = host.evaluate("box => box.offsetHeight")
    until(lambda: phone.evaluate("1") and held_routes, "the request for events")[0].continue_()
    expect(host).to_contain_text("CPU")
    assert host.evaluate("box => box.offsetHeight") == height


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize(
    ("address", "text"),
    [
        ("#/run/{progress}", "copying 5 of 5"),
        ("#/run/{tries}", "2 attempts"),
        ("#/run/{backup}", "disk full"),
        ("#/run/{long}", "200000"),
        ("#/task/backup", "Coming runs"),
        ("#/task/web", "serving"),
        ("#/", "Failed in the last week"),
        ("#/timeline?span=week", "succeeded"),
        ("#/runs", "backup"),
    ],
    ids=["run", "attempts", "failed", "long", "task", "service", "overview", "timeline", "runs"],
)
def test_layout_shift_is_small(
    browser: Browser, session: StorageState, site: Site, address: str, text: str, size: str
) -> None:
    """Late content does not move visible content: the cumulative layout shift is below 0.02."""
    runs = {**site.done, "tries": site.run_to_end("tries") if "tries" in address else ""}
    site.request("POST", "/api/tasks/waits/stop")  # after a minute of starting it would need attention
    site.ok.touch()
    site.run_to_end("backup")  # it has failed and recovered
    context = browser.new_context(storage_state=session, locale="en-GB", timezone_id="UTC", viewport=SIZES[size])
    page = opened(context)
    page.add_init_script(OBSERVED)
    main = page.get_by_role("main")
    site.see(page, address.format(**runs))
    expect(main).to_contain_text(text)  # there is a retry as well
    one_by_one(page, lambda: text in main.inner_text() and page.locator(".skeleton").count() == 0)
    shifts = page.evaluate("shifts")
    context.close()
    moves = "\n".join(f"{value:.4f} {selector}" for value, moved in shifts for selector in moved)
    assert sum(value for value, _ in shifts) < MOST, moves
