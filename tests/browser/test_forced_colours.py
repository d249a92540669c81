"""The dashboard in forced colours, such as the contrast themes of Windows."""

from collections.abc import Iterator

import pytest
from playwright.sync_api import Page, expect

from tests.browser.site import Site

LOOKS = """([box, classes]) => {
    const made = document.createElement("div");
    made.innerHTML = box;
    document.querySelector("main").append(made);
    const place = made.querySelector(".here");
    const looks = classes.map((name) => {
        const one = document.createElement("a");
        one.className = name;
        place.append(one);
        const style = getComputedStyle(one);
        const page = [document.body, document.documentElement].map((under) => getComputedStyle(under).backgroundColor);
        const ground = page.includes(style.backgroundColor) ? "" : style.backgroundColor;
        const border = ["Top", "Bottom"].map((side) => style[`border${side}Style`] + style[`border${side}Width`]);
        const seen = ground || style.backgroundImage !== "none" || style.borderTopStyle !== "none";
        return { shape: [style.backgroundImage, ...border].join(" "), seen };
    });
    made.remove();
    return looks;
}"""
"""The shape of elements without their colours, and whether they are visible, by class."""


@pytest.fixture
def forced(page: Page) -> Iterator[Page]:
    """A window with forced colours."""
    page.emulate_media(forced_colors="active")
    yield page
    page.emulate_media(forced_colors="none")


@pytest.mark.parametrize(
    ("box", "classes"),
    [
        ("<span class='strip here'></span>", ["good", "bad", "warn"]),
        ("<div class='uptime here'></div>", ["good", "warn", "bad"]),
        (
            "<div class='gantt'><div class='plot'><div class='lane here'></div></div></div>",
            ["run good", "run bad", "run good late", "run pending"],
        ),
    ],
    ids=["strip", "uptime", "timeline"],
)
def test_states_differ_in_their_shape(forced: Page, site: Site, box: str, classes: list[str]) -> None:
    """In forced colours, bars of different states differ in shape, and each is visible."""
    site.see(forced, "#/")
    looks = forced.evaluate(LOOKS, [box, classes])
    assert all(look["seen"] for look in looks)
    assert len({look["shape"] for look in looks}) == len(classes)


def test_selection_is_outlined(forced: Page, site: Site) -> None:
    """In forced colours, the current page, pressed buttons and marked lines have an outline."""
    site.see(forced, f"#/run/{site.done['backup']}?line=1")
    for chosen in (".nav [aria-current='page']", ".log-row.target"):
        expect(forced.locator(chosen)).to_have_css("outline-style", "solid")
    site.see(forced, "#/timeline")
    expect(forced.get_by_role("button", name="Day")).to_have_css("outline-style", "solid")
    expect(forced.get_by_role("button", name="Hour")).to_have_css("outline-style", "none")
    badges = forced.locator(".badge svg")
    site.see(forced, "#/")
    expect(badges.first).to_be_visible()
    assert all(
        badge.evaluate("one => getComputedStyle(one.parentElement).borderTopStyle") == "solid" for badge in badges.all()
    )
