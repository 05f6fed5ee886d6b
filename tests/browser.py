"""A real browser: the report's pages as a reader sees them, in Debian's Chromium driven by Playwright."""

from __future__ import annotations

import shutil
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from playwright import sync_api as playwright

_NAMES = ("chromium", "chromium-browser", "google-chrome") if find_spec("playwright") else ()
#: The browser; ``None`` where it or Playwright is not installed.
PROGRAM = next((path for name in _NAMES if (path := shutil.which(name))), None)
_FLAGS = (
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--allow-file-access-from-files",
)
#: Runs before a page's own scripts: collects long tasks and layout shifts from the start.
_WATCH = """
window.seen = { tasks: [], shift: 0 };
new PerformanceObserver((l) => l.getEntries().forEach((e) => window.seen.tasks.push(e.duration)))
  .observe({ type: "longtask", buffered: true });
new PerformanceObserver((l) => l.getEntries().forEach((e) => { if (!e.hadRecentInput) window.seen.shift += e.value; }))
  .observe({ type: "layout-shift", buffered: true });
"""
_TWO_FRAMES = "new Promise((r) => requestAnimationFrame(() => requestAnimationFrame(() => setTimeout(r, 60))))"


@dataclass
class Page:
    """One open page.

    ``console`` holds its console's messages and errors, ``requests`` the addresses it requested that are neither files
    nor its contents.
    """

    tab: playwright.Page
    scripts: bool
    console: list[str] = field(default_factory=list)
    requests: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.tab.on("console", lambda message: self.console.append(message.text))
        self.tab.on("pageerror", lambda error: self.console.append(str(error)))
        self.tab.on("request", lambda request: self._add(request.url))

    def _add(self, url: str) -> None:
        if not url.startswith(("file:", "data:", "blob:")):
            self.requests.append(url)

    def open(self, path: Path, query: str = "") -> None:
        """Goes to a file and waits until it has loaded and settled."""
        self.tab.goto(path.resolve().as_uri() + query)
        self.settle()

    def settle(self) -> None:
        """Waits until two frames were drawn and nothing was left to do; without scripts a moment."""
        if self.scripts:
            self.until(f"{_TWO_FRAMES}.then(() => true)")  # also where a link led elsewhere meanwhile
        else:
            self.tab.wait_for_timeout(300)

    def until(self, expression: str) -> None:
        """Waits until an expression is true, also on the page that a link leads to.

        Playwright's own ``wait_for_function`` evaluates inside the page, which the report's policy forbids.
        """
        from playwright.sync_api import Error

        end = time.monotonic() + 60
        while True:
            with suppress(Error):  # the page went elsewhere meanwhile
                if self.js(expression):
                    return
            assert time.monotonic() < end, f"still false: {expression}"
            self.tab.wait_for_timeout(50)

    def js(self, expression: str) -> Any:
        """The value of an expression, awaited."""
        return self.tab.evaluate(expression)


@dataclass(frozen=True)
class Browser:
    """Chromium, without a window."""

    chromium: playwright.Browser

    @contextmanager
    def page(
        self,
        path: Path,
        query: str = "",
        *,
        size: tuple[int, int] = (1280, 800),
        dark: bool = False,
        scripts: bool = True,
    ) -> Iterator[Page]:
        """A file, opened and settled."""
        tab = self.chromium.new_page(
            viewport={"width": size[0], "height": size[1]},
            color_scheme="dark" if dark else "light",
            java_script_enabled=scripts,
        )
        tab.set_default_timeout(60_000)  # ms: the machine may be busy
        tab.add_init_script(_WATCH)
        page = Page(tab, scripts)
        page.open(path, query)
        try:
            yield page
        finally:
            tab.close()


@contextmanager
def browser() -> Iterator[Browser]:
    """Chromium with a new profile."""
    from playwright.sync_api import sync_playwright

    assert PROGRAM is not None
    with sync_playwright() as driver:
        chromium = driver.chromium.launch(executable_path=PROGRAM, args=_FLAGS)
        try:
            yield Browser(chromium)
        finally:
            chromium.close()
