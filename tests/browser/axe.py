"""Run axe on a page: inject it once, and report only violations."""

from axe_playwright_python.base import AXE_SCRIPT
from playwright.sync_api import Page

_RUN = """async (options) => {
  const { violations } = await axe.run(document, { resultTypes: ["violations"], ...options });
  return violations.flatMap((one) => one.nodes.map((node) => `${one.id}: ${node.html}: ${node.failureSummary}`));
}"""
_TARGETS = {"runOnly": ["target-size"]}
_COLOURS = {"runOnly": ["color-contrast"]}


def small_targets_of(page: Page) -> list[str]:
    """Return links and buttons that are too small for a finger, as WCAG 2.2 and Lighthouse measure them."""
    if not page.evaluate("'axe' in window"):
        page.evaluate(AXE_SCRIPT)
    value: list[str] = page.evaluate(_RUN, _TARGETS)
    return value


def complaints_of(page: Page) -> list[str]:
    """Return all faults of a page, and the faults of its colours in the dark theme."""
    if not page.evaluate("'axe' in window"):
        page.evaluate(AXE_SCRIPT)
    page.emulate_media(color_scheme="light")
    value: list[str] = page.evaluate(_RUN, {})
    page.emulate_media(color_scheme="dark")
    value += page.evaluate(_RUN, _COLOURS)
    page.emulate_media(color_scheme="light")
    return value
