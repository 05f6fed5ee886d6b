"""A real browser, driven through its debugging pipe: the pages as people meet them.

No driver beside Chromium itself is needed. One browser serves many pages; each has its own size, and tells what its
console said and what it asked the network for.
"""

from __future__ import annotations

import base64
import fcntl
import json
import os
import re
import select
import shutil
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

PROGRAM = next((b for n in ("chromium", "chromium-browser", "google-chrome") if (b := shutil.which(n))), None)
_FLAGS = (
    "--headless=new", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-extensions",
    "--disable-background-networking", "--disable-component-update", "--disable-sync", "--hide-scrollbars",
    "--allow-file-access-from-files", "--remote-debugging-pipe",
)  # fmt: skip
#: Runs before a page's own scripts: long tasks and layout shifts are told to those who watch from the beginning.
_WATCH = """
window.seen = { tasks: [], shift: 0 };
new PerformanceObserver((l) => l.getEntries().forEach((e) => window.seen.tasks.push(e.duration)))
  .observe({ type: "longtask", buffered: true });
new PerformanceObserver((l) => l.getEntries().forEach((e) => { if (!e.hadRecentInput) window.seen.shift += e.value; }))
  .observe({ type: "layout-shift", buffered: true });
"""

_NAVIGATED = re.compile("navigated or closed|context was destroyed|Cannot find context|context with specified id")


class Navigated(AssertionError):
    """The page went to another address while it was asked."""


class Browser:
    """Chromium, without a window."""

    def __init__(self, process: subprocess.Popen[bytes], to: int, back: int) -> None:
        self._process, self._to, self._back = process, to, back
        self._rest = b""
        self._count = 0
        self._pages: dict[str, Page] = {}

    def call(self, method: str, session: str | None = None, **params: Any) -> dict[str, Any]:
        """One call of the protocol; events that come before its answer go to their pages."""
        self._count += 1
        number = self._count
        message = {"id": number, "method": method, "params": params, **({"sessionId": session} if session else {})}
        os.write(self._to, json.dumps(message).encode() + b"\0")
        while True:
            answer = self._next(60)
            if answer.get("id") == number:
                if "error" in answer:
                    kind = Navigated if _NAVIGATED.search(str(answer["error"])) else AssertionError
                    raise kind(f"{method}: {answer['error']}")
                result: dict[str, Any] = answer["result"]
                return result

    def pump(self, seconds: float, enough: Callable[[], bool] = lambda: False) -> None:
        """Takes what events there are, for so long or until it is enough."""
        end = time.monotonic() + seconds
        while not enough() and (left := end - time.monotonic()) > 0:
            if b"\0" not in self._rest and not select.select([self._back], [], [], left)[0]:
                return
            self._next(left)

    def _next(self, seconds: float) -> dict[str, Any]:
        while b"\0" not in self._rest:
            if not select.select([self._back], [], [], seconds)[0]:
                raise AssertionError(f"the browser said nothing for {seconds:.0f} s")
            data = os.read(self._back, 1 << 20)
            assert data, "the browser ended"
            self._rest += data
        line, _, self._rest = self._rest.partition(b"\0")
        found: dict[str, Any] = json.loads(line)
        page = self._pages.get(found.get("sessionId", ""))
        if page is not None and "method" in found:
            page.hear(found["method"], found["params"])
        return found

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
        target = self.call("Target.createTarget", url="about:blank")["targetId"]
        session = self.call("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        page = self._pages[session] = Page(self, session, scripts)
        page.call("Page.enable")
        page.call("Runtime.enable")
        page.call("Log.enable")
        page.call("Network.enable")
        page.call("Page.addScriptToEvaluateOnNewDocument", source=_WATCH)
        page.call("Emulation.setScriptExecutionDisabled", value=not scripts)
        scheme = [{"name": "prefers-color-scheme", "value": "dark" if dark else "light"}]
        page.call("Emulation.setEmulatedMedia", features=scheme)
        width, height = size
        page.call("Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=False)
        page.open(path, query)
        try:
            yield page
        finally:
            del self._pages[session]
            self.call("Target.closeTarget", targetId=target)


class Page:
    """One open page.

    ``console`` is what its console said, ``asked`` the addresses it asked for that are no files.
    """

    def __init__(self, browser: Browser, session: str, scripts: bool) -> None:
        self._browser, self._session, self._scripts = browser, session, scripts
        self.console: list[str] = []
        self.asked: list[str] = []
        self._loaded = False

    def call(self, method: str, **params: Any) -> dict[str, Any]:
        return self._browser.call(method, self._session, **params)

    def open(self, path: Path, query: str = "") -> None:
        """Goes to a file and waits until it has loaded and settled."""
        self._loaded = False
        self.call("Page.navigate", url=path.resolve().as_uri() + query)
        self._browser.pump(60, lambda: self._loaded)
        self.settle()

    def settle(self) -> None:
        """Waits until two frames were drawn and nothing was left to do; without scripts a moment."""
        self._browser.pump(0.05 if self._scripts else 0.3)
        if self._scripts:
            self.js("new Promise((r) => requestAnimationFrame(() => requestAnimationFrame(() => setTimeout(r, 60))))")

    def until(self, expression: str, seconds: float = 60) -> None:
        """Waits until an expression holds, also of the page that a link leads to."""
        end = time.monotonic() + seconds
        while True:
            with suppress(Navigated):
                if self.js(expression):
                    return
            assert time.monotonic() < end, f"still not so: {expression}"
            self._browser.pump(0.05)

    def js(self, expression: str) -> Any:
        """The value of an expression, awaited; of a click, which may lead to another page, none."""
        try:
            return self._evaluated(expression)
        except Navigated:
            if not expression.endswith(".click()"):
                raise
        return None

    def _evaluated(self, expression: str) -> Any:
        found = self.call("Runtime.evaluate", expression=expression, awaitPromise=True, returnByValue=True)
        if "exceptionDetails" in found:
            raise AssertionError(found["exceptionDetails"].get("exception", found["exceptionDetails"]))
        return found["result"].get("value")

    def picture(self, path: Path, *, whole: bool = False) -> None:
        """A screenshot, of the first screen or of the whole page."""
        more: dict[str, Any] = {}
        if whole:
            size = self.call("Page.getLayoutMetrics")["cssContentSize"]
            more = {"captureBeyondViewport": True, "clip": {**size, "scale": 1}}
        path.write_bytes(base64.b64decode(self.call("Page.captureScreenshot", format="png", **more)["data"]))

    def hear(self, event: str, params: dict[str, Any]) -> None:
        if event == "Page.loadEventFired":
            self._loaded = True
        elif event == "Runtime.consoleAPICalled":
            self.console.append(" ".join(str(a.get("value", a.get("description"))) for a in params["args"]))
        elif event == "Runtime.exceptionThrown":
            details = params["exceptionDetails"]
            self.console.append(str(details.get("exception", {}).get("description") or details["text"]))
        elif event == "Log.entryAdded":
            self.console.append(params["entry"]["text"])
        elif event == "Network.requestWillBeSent" and not params["request"]["url"].startswith(("file:", "data:")):
            self.asked.append(params["request"]["url"])


@contextmanager
def browser() -> Iterator[Browser]:
    """A browser with a profile of its own, ended at the end."""
    assert PROGRAM is not None
    # Chromium reads its descriptor 3 and writes its 4: ours are kept away from these.
    ours, its = (tuple(fcntl.fcntl(end, fcntl.F_DUPFD_CLOEXEC, 10) for end in os.pipe()) for _ in range(2))

    def connect() -> None:
        os.dup2(ours[0], 3)
        os.dup2(its[1], 4)

    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as profile:
        process = subprocess.Popen(
            [PROGRAM, *_FLAGS, f"--user-data-dir={profile}"],
            preexec_fn=connect,
            pass_fds=(3, 4),
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        os.close(ours[0])
        os.close(its[1])
        try:
            yield Browser(process, ours[1], its[0])
        finally:
            process.kill()
            process.wait()
            os.close(ours[1])
            os.close(its[0])
