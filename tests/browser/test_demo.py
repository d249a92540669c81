"""A first visit to ``ringward demo`` by a user who has read no documentation."""

import os
import re
import shutil
import subprocess
from collections.abc import Iterator
from datetime import datetime
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from playwright.sync_api import Browser, expect

from tests.browser.conftest import watched
from tests.support.daemon import RINGWARD

PROGRAM = [str(RINGWARD), "demo"]
DESK = {"viewport": {"width": 1280, "height": 900}}
PHONE = {"viewport": {"width": 390, "height": 844}, "is_mobile": True, "has_touch": True, "color_scheme": "dark"}


SLEEP = """#!/bin/sh
while [ "$1" = 0.4 ] && [ -e {held} ]; do {sleep} 0.05; done
exec {sleep} "$@"
"""
"""Only the backup sleeps this long."""


class Demonstration(NamedTuple):
    """Printed address and password; the backup runs as long as the file exists."""

    address: str
    password: str
    held: Path


@pytest.fixture(scope="module")
def demonstration(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Demonstration]:
    tools = tmp_path_factory.mktemp("tools")
    marker = tools / "held"
    (tools / "sleep").write_text(SLEEP.format(held=marker, sleep=shutil.which("sleep")))
    (tools / "sleep").chmod(0o755)
    environ = {**os.environ, "PATH": f"{tools}:{os.environ['PATH']}"}
    with subprocess.Popen(PROGRAM, stdout=subprocess.PIPE, text=True, env=environ) as demo:
        try:
            assert demo.stdout is not None
            printed = "".join(demo.stdout.readline() for _ in range(5))
            matches = re.findall(r"^  (?:address|password) +(\S+)$", printed, re.MULTILINE)
            yield Demonstration(matches[0], matches[1], marker)
        finally:
            demo.terminate()


@pytest.mark.parametrize("size", [DESK, PHONE], ids=["desk", "phone"])
def test_failed_backup_in_two_clicks(
    browser: Browser, demonstration: Demonstration, complaints: list[str], size: dict[str, Any]
) -> None:
    """Two clicks or taps lead from the overview to the failed backup with its cause, and to a new run."""
    context = browser.new_context(locale="en-GB", **size)
    page = watched(context, complaints)
    page.goto(demonstration.address)
    page.get_by_label("Password").fill(demonstration.password)
    page.get_by_role("button", name="Log in").click()
    failures = page.get_by_role("region", name="Failed in the last week")
    failure = failures.get_by_role("listitem").filter(has_text="backup")
    expect(failure).to_contain_text("/var/backups is full")
    link = failure.get_by_role("link", name=re.compile("^Failure of backup"))
    at = link.locator("time").get_attribute("datetime") or ""
    assert datetime.fromisoformat(at).astimezone().isoweekday() == 2
    press = "tap" if "has_touch" in size else "click"
    getattr(link, press)()
    verdict, log = page.get_by_role("region", name="Verdict"), page.get_by_role("log")
    expect(verdict).to_contain_text("Failed")
    expect(verdict).to_contain_text("/var/backups is full")
    expect(log).to_contain_text("No space left on device")
    expect(page.get_by_role("region", name="Last good run", exact=True)).to_contain_text("Definition: unchanged")
    demonstration.held.touch()
    getattr(page.get_by_role("button", name="Run again"), press)()
    expect(verdict).to_contain_text("Running")
    expect(log).to_contain_text("dumping database shop")
    demonstration.held.unlink()
    expect(verdict).to_contain_text("Succeeded")
    expect(log).to_contain_text("ok  dump is complete")
    page.get_by_role("navigation", name="Pages", exact=True).get_by_role("link", name="Overview").click()
    expect(page.get_by_role("region", name="Needs attention")).not_to_contain_text("backup")
    context.close()


def test_twelve_hour_times_fit(browser: Browser, demonstration: Demonstration, complaints: list[str]) -> None:
    """The times of failures, which are longer with AM and PM, do not overlap the names beside them."""
    page = watched(browser.new_context(locale="en-US", viewport={"width": 1280, "height": 900}), complaints)
    page.goto(demonstration.address)
    page.get_by_label("Password").fill(demonstration.password)
    page.get_by_role("button", name="Log in").click()
    times = page.get_by_role("region", name="Failed in the last week").get_by_role(
        "link", name=re.compile("^Failure of")
    )
    expect(times.filter(has_text=re.compile(", .*[AP]M")).first).to_be_visible()
    assert times.evaluate_all("links => links.map(one => one.scrollWidth <= one.clientWidth)") == [True] * times.count()


def test_missed_deadline_and_flow(browser: Browser, demonstration: Demonstration, complaints: list[str]) -> None:
    """The overview shows a task that missed its deadline, and a flow, which ran at the start."""
    page = watched(browser.new_context(locale="en-GB", viewport={"width": 1280, "height": 900}), complaints)
    page.goto(demonstration.address)
    page.get_by_label("Password").fill(demonstration.password)
    page.get_by_role("button", name="Log in").click()
    attention = page.get_by_role("region", name="Needs attention").get_by_role("listitem")
    expect(attention.filter(has_text="sync-crm")).to_contain_text("late")
    expect(page.get_by_role("row").filter(has_text="new-prices").first).to_contain_text("succeeded")
    page.context.close()
