"""Logins, tokens and accounts in a real browser."""

import re

from playwright.sync_api import Browser, Page, StorageState, expect

from tests.browser.conftest import watched
from tests.browser.site import Site
from tests.support.daemon import PASSWORD


def test_login_and_logout(browser: Browser, site: Site, complaints: list[str]) -> None:
    """A wrong password is refused with a message, and the right one logs in.

    A logout ends the session and shows the login page.
    """
    context = browser.new_context()
    page = watched(context, complaints)
    page.goto(site.url)
    page.get_by_label("Password").fill("wrong")
    page.get_by_role("button", name="Log in").click()
    expect(page.get_by_role("alert")).to_have_text("Wrong user name or password.")
    page.get_by_label("Password").fill(PASSWORD)
    page.get_by_role("button", name="Log in").click()
    page.get_by_role("button", name="Log out").click()
    expect(page.get_by_label("Password")).to_be_visible()
    page.reload()
    expect(page.get_by_label("Password")).to_be_visible()
    context.close()
    complaints[:] = [complaint for complaint in complaints if "401" not in complaint]


def test_refused_cookie_is_explained(browser: Browser, site: Site, complaints: list[str]) -> None:
    """A browser that refuses the cookie gets an explanation instead of an endless wait."""
    context = browser.new_context()
    page = watched(context, complaints)
    page.route("**/api/auth/login", lambda route: route.fulfill(status=204))
    page.goto(site.url)
    page.get_by_label("Password").fill(PASSWORD)
    page.get_by_role("button", name="Log in").click()
    expect(page.get_by_role("alert")).to_contain_text("cookie")
    expect(page.get_by_role("button", name="Log in")).to_be_enabled()
    context.close()


def test_works_without_local_storage(
    browser: Browser, session: StorageState, site: Site, complaints: list[str]
) -> None:
    """In a browser without local storage, everything works until the page is left."""
    context = browser.new_context(storage_state=session)
    context.add_init_script(
        "Object.defineProperty(window, 'localStorage', { get() { throw new DOMException('no', 'SecurityError'); } });"
    )
    page = watched(context, complaints)
    site.see(page, f"#/run/{site.done['backup']}")
    page.get_by_role("button", name="Colours: auto").click()
    expect(page.locator("html[data-theme=light]")).to_have_count(1)
    page.get_by_label("Times").select_option("Since start")
    expect(page.get_by_role("log")).to_contain_text("disk full")
    context.close()


def test_token_lifecycle(page: Page, site: Site) -> None:
    """A token is created, shown once, listed, used, and revoked."""
    site.see(page, "#/tokens")
    page.get_by_role("button", name="New token").click()
    dialog = page.get_by_role("dialog")
    dialog.get_by_label("Name").fill("ci")
    dialog.get_by_role("button", name="Create token").click()
    token = dialog.locator(".mono").inner_text()
    dialog.get_by_role("button", name="Done").click()
    row = page.get_by_role("row", name=re.compile("ci"))
    expect(row).to_contain_text("viewer")
    headers = {"Authorization": f"Bearer {token}", "X-Forwarded-For": "203.0.113.1"}
    assert site.request("GET", "/api/tasks", headers=headers).status == 200
    row.get_by_role("button", name="Revoke").click()
    page.get_by_role("dialog").get_by_role("button", name="Revoke").click()
    expect(row).to_have_count(0)
    assert site.request("GET", "/api/tasks", headers=headers).status == 401


def test_account_lifecycle(page: Page, browser: Browser, site: Site, complaints: list[str]) -> None:
    """An account is created, logs in with its name, gets another password, and is removed."""
    site.see(page, "#/accounts")
    page.get_by_role("button", name="New account").click()
    dialog = page.get_by_role("dialog")
    dialog.get_by_label("Name").fill("alice")
    dialog.get_by_label("Password").fill("open-sesame")
    dialog.get_by_role("button", name="Create account").click()
    row = page.get_by_role("row", name=re.compile("alice"))
    expect(row).to_contain_text("viewer")
    context = browser.new_context()
    other = watched(context, complaints)
    other.goto(site.url)
    other.get_by_label("User name").fill("alice")
    other.get_by_label("Password").fill("open-sesame")
    other.get_by_role("button", name="Log in").click()
    expect(other.get_by_text("signed in as alice, viewer")).to_be_visible()
    row.get_by_role("button", name="Change password").click()
    dialog.get_by_label("Password").fill("another-password")
    dialog.get_by_role("button", name="Change password").click()
    expect(dialog).to_have_count(0)
    other.reload()
    expect(other.get_by_label("User name")).to_be_visible()
    context.close()
    row.get_by_role("button", name="Remove").click()
    dialog.get_by_role("button", name="Remove").click()
    expect(row).to_have_count(0)
    complaints[:] = [complaint for complaint in complaints if "401" not in complaint]


def test_viewer_cannot_change_anything(browser: Browser, site: Site, complaints: list[str]) -> None:
    """With a read-only token, every control that changes something is disabled, and the page says why."""
    token = site.request("POST", "/api/tokens", {"name": "look", "role": "viewer"}).json()["token"]
    context = browser.new_context(extra_http_headers={"Authorization": f"Bearer {token}"})
    page = watched(context, complaints)
    page.goto(site.url)
    expect(page.get_by_text("signed in as viewer")).to_be_visible()
    buttons = page.get_by_role("main").get_by_role("button", name=re.compile("^(Run|Start|Restart)$"))
    expect(buttons.first).to_be_disabled()
    assert all(button.is_disabled() for button in buttons.all())
    expect(page.get_by_role("link", name="Audit")).to_have_count(0)
    context.close()
