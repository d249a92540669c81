"""Take the pictures of README.rst from the demonstration: ``python deploy/screenshots.py [CHROMIUM]``.

It needs Playwright, and a Chromium: the path CHROMIUM, or the default of Playwright.
"""

import re
import subprocess
import sys
from pathlib import Path

from playwright.sync_api import Browser, Page, sync_playwright

IMAGES = Path(__file__).parent.parent / "docs" / "images"
_DESK = {"width": 1440, "height": 900}
_LOW = {"width": 1024, "height": 720}
_PHONE = {"width": 390, "height": 780}
_SETTLED_MS = 1500
_PATIENCE_MS = 120_000
_SAMPLED_MS = 6000


def main() -> None:
    """Start a demonstration, take the pictures, stop it."""
    IMAGES.mkdir(exist_ok=True)
    program = [sys.executable, "-m", "ringward", "demo"]
    with subprocess.Popen(program, stdout=subprocess.PIPE, text=True) as demo:
        try:
            _take(*_access(demo), sys.argv[1] if len(sys.argv) > 1 else None)
        finally:
            demo.terminate()


def _access(demo: "subprocess.Popen[str]") -> tuple[str, str]:
    """Return address and password that the demonstration prints."""
    found: dict[str, str] = {}
    for line in demo.stdout or ():
        if said := re.match(r"  (address|password) +(\S+)", line):
            found[said[1]] = said[2]
        if len(found) == 2:
            return found["address"], found["password"]
    raise SystemExit("the demonstration does not start")


def _take(address: str, password: str, chromium: str | None) -> None:
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=chromium, args=["--no-sandbox"])
        for name, size, scheme, path in (
            ("overview", _DESK, "light", "/"),
            ("run", _LOW, "dark", "/#/runs?task_name=backup&status=failed"),
            ("phone", _PHONE, "light", "/"),
        ):
            page = _page(browser, address, password, size, scheme)
            page.goto(address + path)
            _settle(page)
            if name == "run":
                page.locator("main table a[href*='/run/']").first.click()
                page.get_by_role("log").get_by_text("No space left on device").wait_for()
                _settle(page)
            if name == "overview":
                page.wait_for_timeout(_SAMPLED_MS)
            page.screenshot(path=IMAGES / f"{name}.png")
        browser.close()


def _page(browser: Browser, address: str, password: str, size: object, scheme: str) -> Page:
    """Return a page with a session."""
    page = browser.new_context(viewport=size, color_scheme=scheme, locale="en-GB").new_page()  # type: ignore[arg-type]
    page.set_default_timeout(_PATIENCE_MS)
    page.goto(address)
    page.get_by_label("Password").fill(password)
    page.keyboard.press("Enter")
    page.get_by_role("navigation", name="Pages").wait_for()
    return page


def _settle(page: Page) -> None:
    """Wait until everything is loaded and drawn."""
    page.locator(".skeleton").first.wait_for(state="detached")
    page.wait_for_timeout(_SETTLED_MS)


if __name__ == "__main__":
    main()
