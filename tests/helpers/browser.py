"""A browser for tests of pages: the system's Chromium, offline."""

import asyncio
import contextlib
import shutil
import subprocess
from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page

NAMES = ("chromium", "chromium-browser", "google-chrome")
LOCAL = ("file:", "data:", "blob:", "about:")


@pytest.fixture
def page(chromium: "tuple[Browser, asyncio.AbstractEventLoop]") -> Iterator["Page"]:
    """A fresh page. The test fails if the page asks the network for anything, or has an error."""
    browser, loop = chromium
    asked: list[str] = []
    errors: list[str] = []
    with attached(loop):
        context = browser.new_context(offline=True)
        context.on("request", lambda request: asked.append(request.url))
        context.on("console", lambda said: errors.extend([said.text] * (said.type == "error")))
        context.on("weberror", lambda error: errors.append(str(error.error)))
        page = context.new_page()
        page.on("websocket", lambda socket: asked.append(socket.url))
        yield page
        if not page.is_closed():
            page.evaluate("new Promise(requestAnimationFrame)")  # what is under way may still fail
        context.close()
    assert [url for url in asked if not url.startswith(LOCAL)] == [], "the network was asked"
    assert errors == [], "the page had errors"


@pytest.fixture(scope="session")
def chromium() -> Iterator["tuple[Browser, asyncio.AbstractEventLoop]"]:
    """The browser, and the event loop that talks to it."""
    sync_api = pytest.importorskip("playwright.sync_api", reason="playwright is not installed")
    path = installed()
    if path is None:
        pytest.skip(f"no browser: none of {', '.join(NAMES)} is installed")
    with sync_api.sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=path, args=["--no-sandbox"])
        loop = asyncio.get_running_loop()
        asyncio._set_running_loop(None)
        yield browser, loop
        asyncio._set_running_loop(loop)
        browser.close()


@contextlib.contextmanager
def attached(loop: asyncio.AbstractEventLoop) -> Iterator[None]:
    """Playwright's loop counts as running only here, so that other tests can have their own."""
    asyncio._set_running_loop(loop)
    try:
        yield
    finally:
        asyncio._set_running_loop(None)


def installed() -> str | None:
    """The path of a browser that starts (Ubuntu has a `chromium` that only says to get another)."""
    for name in NAMES:
        path = shutil.which(name)
        if path and subprocess.run([path, "--version"], capture_output=True).returncode == 0:
            return path
    return None
