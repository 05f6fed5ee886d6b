"""The live page of ``flashcore watch``: read-only, for one user of this machine. It asks for the state twice a second.

The printed address holds a token. The server exchanges it for a cookie, so that the token stays neither in the
browser's address nor in a referrer. The cookie's name holds the port, because a browser sends a host's cookies to all
its ports.
"""

from __future__ import annotations

import json
import secrets
import time
from collections.abc import Mapping
from contextlib import suppress
from hmac import compare_digest
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from typing import Any, Self
from urllib.parse import parse_qs

from flashcore.errors import UsageError

HERE = Path(__file__).parent
FILES = {
    "/": (HERE / "live.html", "text/html"),
    "/live.css": (HERE / "live.css", "text/css"),
    "/live.js": (HERE / "live.js", "text/javascript"),
    "/style.css": (HERE.parents[1] / "report" / "static" / "style.css", "text/css"),
}
#: Sent with every response, errors included.
HEADERS = {
    "Allow": "GET",
    "Cache-Control": "no-store",
    "Content-Security-Policy": "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; "
    "img-src data:; base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
}
#: The page lists so many saves.
SAVES = 10


class Live(ThreadingHTTPServer):
    """Serves the page while its context is open.

    Args:
        port: 0 takes any free one.

    Raises:
        UsageError: the port is taken, or there is none of this number.
    """

    def __init__(self, port: int = 0) -> None:
        try:
            super().__init__(("127.0.0.1", port), _Request)
        except (OSError, OverflowError) as error:
            raise UsageError(
                f"cannot serve on port {port}: {getattr(error, 'strerror', error)}\nhint: name another port"
            ) from None
        self.token = secrets.token_urlsafe()
        self.cookie = f"flashcore_{self.server_port}={self.token}"
        self.address = f"http://127.0.0.1:{self.server_port}/?token={self.token}"
        self.hosts = [[f"{name}:{self.server_port}"] for name in ("127.0.0.1", "localhost")]
        self._events: dict[tuple[Any, ...], tuple[float, str]] = {}

    def put(self, event: Mapping[str, Any]) -> None:
        """Adds an event to the state.

        A later event replaces the one of the same kind ten saves before, so that the state does not grow.

        Raises:
            ValueError: a value is not finite, which JSON cannot express.
        """
        sent = time.monotonic(), json.dumps(event, allow_nan=False)
        fields = [event.get(name) for name in ("event", "variant", "shape", "question")]
        key = (*fields, event["save"] % SAVES if "save" in event else None)
        # In the order of time, and replaced as a whole: other threads read it.
        self._events = {k: e for k, e in self._events.items() if k != key} | {key: sent}

    def state(self) -> bytes:
        """The events as JSON, each with its age in seconds."""
        now = time.monotonic()
        return f"[{','.join(f'[{now - at:.1f},{event}]' for at, event in self._events.values())}]".encode()

    def __enter__(self) -> Self:
        Thread(target=self.serve_forever, args=(0.1,), daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        self.shutdown()
        self.server_close()


class _Request(BaseHTTPRequestHandler):
    server: Live
    timeout = 3  # seconds for which a browser may neither send its request nor read a response

    def handle(self) -> None:
        with suppress(OSError):  # the browser went away
            super().handle()

    def log_message(self, *_: object) -> None:
        """Logs nothing: the terminal shows the watch's own screen."""

    def end_headers(self) -> None:
        for name, value in HEADERS.items():
            self.send_header(name, value)
        super().end_headers()

    def parse_request(self) -> bool:
        """Whether the request may be answered; another one has been refused."""
        if not super().parse_request():
            return False
        if self.command != "GET":
            self.send_error(HTTPStatus.METHOD_NOT_ALLOWED)
            return False
        if self.headers.get_all("Host") not in self.server.hosts or not (self._has_cookie() or self._has_token()):
            self.send_error(HTTPStatus.FORBIDDEN, explain="Open the address that flashcore watch printed")
            return False
        return True

    def _has_cookie(self) -> bool:
        cookies = self.headers.get("Cookie", "").encode().split(b";")
        return any(compare_digest(cookie.strip(), self.server.cookie.encode()) for cookie in cookies)

    def _has_token(self) -> bool:
        path, _, query = self.path.partition("?")
        (token,) = parse_qs(query).get("token", [""])[:1]
        return path == "/" and compare_digest(token.encode(), self.server.token.encode())

    def do_GET(self) -> None:
        path = self.path.partition("?")[0]
        if self._has_token():
            self.send_response(HTTPStatus.OK)
            # After a 303, a browser withholds the strict cookie if the link was on another site (a web terminal).
            self.send_header("Refresh", "0; url=/")
            self.send_header("Set-Cookie", f"{self.server.cookie}; HttpOnly; SameSite=Strict; Path=/")
            self.end_headers()
        elif path == "/state":
            self._send("application/json", self.server.state())
        elif path in FILES:
            file, kind = FILES[path]
            self._send(kind, file.read_bytes())
        else:
            self.send_error(HTTPStatus.NOT_FOUND)

    def _send(self, kind: str, content: bytes) -> None:
        self.send_response(HTTPStatus.OK)
        self.send_header("Content-Type", f"{kind}; charset=utf-8")
        self.end_headers()
        self.wfile.write(content)
