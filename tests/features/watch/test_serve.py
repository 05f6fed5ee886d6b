"""The live page: who may read it, what a browser is sent, and what it shows."""

from __future__ import annotations

import http.client
import json
import threading
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, suppress
from http.server import BaseHTTPRequestHandler, HTTPServer
from typing import Any

import pytest

from flashcore.errors import UsageError
from flashcore.features.watch.serve import FILES, SAVES, Live
from tests.browser import PROGRAM, Page, browser

Event = dict[str, Any]
PATHS = (*FILES, "/state")


def saved(save: int, *files: str) -> Event:
    return {"version": 1, "event": "save", "save": save, "files": list(files) or ["a.cu"]}


def answer(
    save: int, question: str, *lines: str, status: str = "ok", shape: str | None = "small", **more: Any
) -> Event:
    return {"version": 1, "event": "answer", "save": save, "variant": "wide", "shape": shape, "question": question,
            "status": status, "seconds": 1.2, "lines": list(lines), **more}  # fmt: skip


class Client:
    """Sends requests as a browser does. Their connections stay open as long as the stack."""

    def __init__(self, live: Live, connections: ExitStack) -> None:
        self.live = live
        self.connections = connections
        self.query = "?" + live.address.partition("?")[2]
        self.cookie = self.get(f"/{self.query}", cookie="").headers["Set-Cookie"].partition(";")[0]

    def get(
        self, path: str, *, method: str = "GET", hosts: Sequence[str] | None = None, cookie: str | None = None
    ) -> http.client.HTTPResponse:
        """The response, of which the head was read. By default the request is one that may be answered."""
        connection = http.client.HTTPConnection("127.0.0.1", self.live.server_port, timeout=120)
        connection.putrequest(method, path, skip_host=True)
        for host in [f"127.0.0.1:{self.live.server_port}"] if hosts is None else hosts:
            connection.putheader("Host", host)
        connection.putheader("Cookie", self.cookie if cookie is None else cookie)
        connection.endheaders()
        return self.connections.enter_context(connection.getresponse())

    def state(self) -> list[tuple[float, Event]]:
        """The events, each with its age."""
        state: list[tuple[float, Event]] = json.loads(self.get("/state").read())
        return state

    def events(self) -> list[Event]:
        return [event for _, event in self.state()]


@pytest.fixture
def client() -> Iterator[Client]:
    with ExitStack() as connections, Live() as live:
        yield Client(live, connections)


def test_the_token_of_the_address_is_exchanged_for_a_cookie(client: Client) -> None:
    assert client.live.address.startswith(f"http://127.0.0.1:{client.live.server_port}/?token=")
    token = client.query.removeprefix("?token=")
    response = client.get(f"/?token={token}", cookie="")
    assert (response.status, response.headers["Refresh"], response.read()) == (200, "0; url=/", b"")
    cookie, *attributes = response.headers["Set-Cookie"].split("; ")
    assert set(attributes) == {"HttpOnly", "SameSite=Strict", "Path=/"} and len(token) >= 32
    assert cookie == f"flashcore_{client.live.server_port}={token}", "two servers' cookies do not replace each other"
    page = client.get("/", cookie=cookie)
    text = page.read().decode()
    assert page.status == 200 and "<title>" in text and token not in text
    assert "Refresh" not in page.headers
    assert client.get(f"/?token={token}").headers["Refresh"] == "0; url=/", "the token never stays in the address"


@pytest.mark.parametrize("path", [*PATHS, "/missing", "/?token=wrong", "/?token=%ff%00%C3%A9", "/?token=", "/?token"])
def test_without_the_cookie_nothing_is_shown(client: Client, path: str) -> None:
    name = f"flashcore_{client.live.server_port}="
    for cookie in ("", "x=1", name, f"{name}\xe9", client.cookie[:-1], client.cookie + "x"):
        response = client.get(path, cookie=cookie)
        assert response.status == 403 and b"flashcore watch printed" in response.read()


def test_the_token_is_accepted_at_one_path_and_as_one_cookie(client: Client) -> None:
    for path in ("/state", "/live.js"):
        assert client.get(path + client.query, cookie="").status == 403
    token = client.query.removeprefix("?token=")
    assert client.get("/", cookie=f"flashcore_1={token}").status == 403, "another port's cookie"
    assert client.get("/", cookie=f"a=b=[; {client.cookie} ;other").status == 200, "among other servers' cookies"


@pytest.mark.parametrize("method", ["POST", "HEAD", "PUT", "DELETE", "OPTIONS", "PATCH", "TRACE", "CONNECT", "get"])
def test_every_method_but_get_is_refused(client: Client, method: str) -> None:
    response = client.get("/", method=method)
    assert (response.status, response.headers["Allow"]) == (405, "GET")


def test_only_requests_to_the_bound_address_are_answered(client: Client) -> None:
    port = client.live.server_port
    assert client.live.server_address == ("127.0.0.1", port)
    assert client.get("/", hosts=[f"localhost:{port}"]).status == 200
    for hosts in ([], ["127.0.0.1"], ["localhost"], [f"127.0.0.1:{port + 1}"], [f"rebound.example:{port}"],
                  [f"127.0.0.1:{port}.rebound.example"], [f"user@127.0.0.1:{port}"], [f"127.0.0.2:{port}"],
                  [f"127.0.0.1:{port}", "rebound.example"], ["rebound.example", f"127.0.0.1:{port}"]):  # fmt: skip
        assert client.get("/", hosts=hosts).status == 403, hosts
        exchange = client.get(f"/{client.query}", hosts=hosts)
        assert exchange.status == 403 and "Set-Cookie" not in exchange.headers


@pytest.mark.parametrize("path", [*PATHS, "/missing", "/../serve.py", "/serve.py"])
@pytest.mark.parametrize("allowed", [True, False])
def test_every_response_has_the_headers_that_protect_it(client: Client, path: str, allowed: bool) -> None:
    response = client.get(path, cookie=None if allowed else "")
    assert response.status == (403 if not allowed else 200 if path in PATHS else 404)
    headers = response.headers
    assert headers["Referrer-Policy"] == "no-referrer" and headers["X-Content-Type-Options"] == "nosniff"
    assert headers["Cache-Control"] == "no-store" and headers["Access-Control-Allow-Origin"] is None
    policy = dict(part.strip().split(" ", 1) for part in headers["Content-Security-Policy"].split(";"))
    assert policy["default-src"] == "'none'" and policy["connect-src"] == "'self'"
    assert policy["script-src"] == policy["style-src"] == "'self'"


def test_a_browser_gets_the_current_state(client: Client) -> None:
    assert client.state() == []
    first = [saved(1), answer(1, "budgets", "44 of 44 hold", shape=None), {"event": "idle", "save": 1}]
    for event in first:
        client.live.put(event)
    assert client.events() == first and all(0 <= age < 60 for age, _ in client.state())
    more = [saved(2, "b.cu"), answer(2, "right", "maximum error 1e-3\nof <b>2e-3</b> \u2028", rate=0.5)]
    for event in more:
        client.live.put(event)
    assert client.events() == [*first, *more]


def test_the_state_has_each_newest_answer_and_does_not_grow(client: Client) -> None:
    def put_save(save: int) -> None:
        client.live.put(saved(save))
        client.live.put({"event": "working", "save": save, "what": "bench small"})
        for question in ("budgets", "right", "faster"):
            client.live.put(answer(save, question, f"of save {save}"))
        client.live.put({"event": "idle", "save": save})
        client.live.put({"event": "worker", "message": f"worker replaced in save {save}"})

    client.live.put(saved(1))
    client.live.put(answer(1, "limits", "the only one"))
    for save in range(2, 30):
        put_save(save)
    size = len(client.state())
    for save in range(30, 60):
        put_save(save)
    state = client.events()
    assert len(state) == size
    assert [e["save"] for e in state if e["event"] == "save"] == list(range(50, 60))
    assert [e["lines"] for e in state if e.get("question") == "limits"] == [["the only one"]]
    assert [e["save"] for e in state if e.get("question") == "faster"][-1] == 59
    assert state[-1] == {"event": "worker", "message": "worker replaced in save 59"}, "in the order of time"


def test_a_value_that_json_has_not_is_refused(client: Client) -> None:
    with pytest.raises(ValueError):
        client.live.put(answer(1, "faster", ratio=float("nan")))


def test_the_server_ends_with_its_context_whatever_browsers_do() -> None:
    before = set(threading.enumerate())
    with ExitStack() as connections:
        with Live() as live:
            client = Client(live, connections)
            for save in range(SAVES):
                live.put(answer(save, "limits", "x" * 1_000_000))  # more than a socket's buffers take
            client.get("/state")  # never reads
            silent = http.client.HTTPConnection("127.0.0.1", live.server_port, timeout=120)
            silent.connect()  # as browsers do ahead of a request
            connections.callback(silent.close)
        with suppress(ConnectionResetError):  # where the server had not accepted it
            assert silent.sock is not None and silent.sock.recv(1) == b""
        with pytest.raises(ConnectionRefusedError):
            http.client.HTTPConnection("127.0.0.1", live.server_port, timeout=120).connect()
        for thread in set(threading.enumerate()) - before:
            thread.join(timeout=120)
        assert set(threading.enumerate()) <= before, "no thread is left"
        with Live(live.server_port) as again:
            client.live = again
            assert client.get("/").status == 403, "each server has its token"


def test_a_server_that_nobody_opened_ends() -> None:
    with Live() as live:
        port = live.server_port
    with Live(port) as again:
        assert again.server_port == port


def test_a_taken_port_is_named(client: Client) -> None:
    with pytest.raises(UsageError, match=f"port {client.live.server_port}: .*\n.*hint: "):
        Live(client.live.server_port)


@pytest.mark.parametrize("port", [-1, 65536, 99999])
def test_a_number_that_is_no_port_is_refused(port: int) -> None:
    with pytest.raises(UsageError, match=f"port {port}: .*0-65535.*\n.*hint: "):
        Live(port)


# --- in a browser ---


def text(element: str) -> str:
    return f"document.getElementById('{element}').innerText"


@pytest.mark.slow
@pytest.mark.skipif(PROGRAM is None, reason="tool: needs Chromium and Playwright")
def test_the_page_shows_each_event_in_place() -> None:
    hostile = "<img src=x onerror=document.title='hostile'>"
    with ExitStack() as stack:
        chromium = stack.enter_context(browser()).chromium
        live = stack.enter_context(Live())
        tab = chromium.new_page(viewport={"width": 390, "height": 800})
        stack.callback(tab.close)
        page = Page(tab, scripts=True)
        live.put(saved(1, *(f"{name}.cu" for name in "abcde")))
        live.put(answer(1, "budgets", "44 of 44 limits hold", shape=None))
        tab.goto(live.address)
        page.until(f"{text('budgets')}.includes('44 of 44 limits hold')")
        assert page.js("location.href") == f"http://127.0.0.1:{live.server_port}/"
        assert page.js("document.cookie") == "" and page.js("history.length") == 2, "a new tab's page, and this one"
        assert "a.cu, b.cu, c.cu and 2 more" in page.js(text("save"))
        assert page.js(text("variant")) == "wide" and "no answer yet" in page.js(text("faster"))
        page.until(f"/[1-9] s ago/.test({text('budgets')})")  # the age counts without an event

        live.put(saved(2, hostile))
        live.put({"version": 1, "event": "working", "save": 2, "what": hostile})
        live.put(answer(2, "right", hostile, status="failed", shape=hostile))
        live.put({"version": 1, "event": "error", "save": 2, "message": hostile})
        live.put({"version": 1, "event": "worker", "message": hostile})
        page.until(f"{text('worker')}.includes('onerror')")
        for element in ("save", "doing", "right", "error", "worker", "saves"):
            assert hostile in page.js(text(element)), element
        assert page.js("document.images.length") == 0 and page.js("document.title") == "✗ wide, save 2"
        assert "of save 1" in page.js(text("budgets")) and "of save" not in page.js(text("right"))
        assert page.js("document.documentElement.scrollWidth <= innerWidth"), "no sideways scrolling at 390 pixels"

        live.put({"version": 1, "event": "idle", "save": 2})
        page.until(f"{text('doing')}.includes('idle')")
        for save in range(3, 14):
            live.put(saved(save))
        page.until(f"{text('save')}.startsWith('Save 13 ')")
        rows = "Array.from(document.querySelectorAll('#saves tr'), (row) => row.cells[0].innerText)"
        assert page.js(rows) == [str(save) for save in range(13, 3, -1)]
        assert page.js("document.getElementById('error').hidden && document.getElementById('worker').hidden")

        live.put({**answer(13, "faster", "1.2 × faster"), "variant": "tall"})
        page.until("document.getElementById('variant').innerText === 'tall'")
        tab.click("#variants a:text-is('wide')")
        page.until(f"{text('budgets')}.includes('44 of 44 limits hold')")

        assert page.console == []
        live.put(answer(13, "right", "the newest answer"))
        page.until(f"{text('right')}.includes('the newest answer')")
        assert {url.split("/")[2] for url in page.requests} == {f"127.0.0.1:{live.server_port}"}


@pytest.mark.slow
@pytest.mark.skipif(PROGRAM is None, reason="tool: needs Chromium and Playwright")
def test_the_address_can_be_opened_by_a_link_of_another_site() -> None:
    class Terminal(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(200)
            self.send_header("Content-Type", "text/html")
            self.end_headers()
            self.wfile.write(f"<a href='{live.address}'>open</a>".encode())

        def log_message(self, *_: object) -> None: ...

    with ExitStack() as stack:
        chromium = stack.enter_context(browser()).chromium
        live = stack.enter_context(Live())
        live.put(answer(1, "right", "the first answer"))
        other = stack.enter_context(HTTPServer(("127.0.0.1", 0), Terminal))
        threading.Thread(target=other.serve_forever).start()
        stack.callback(other.shutdown)
        tab = chromium.new_page()
        stack.callback(tab.close)
        page = Page(tab, scripts=True)
        tab.goto(f"http://localhost:{other.server_port}/x")
        tab.click("a")
        page.until(f"{text('right')}.includes('the first answer')")
        assert page.js("location.search") == ""


@pytest.mark.slow
@pytest.mark.skipif(PROGRAM is None, reason="tool: needs Chromium and Playwright")
def test_the_page_says_that_its_server_ended() -> None:
    with ExitStack() as stack:
        chromium = stack.enter_context(browser()).chromium
        tab = chromium.new_page()
        stack.callback(tab.close)
        page = Page(tab, scripts=True)
        with Live() as live:
            live.put(answer(1, "right", "the last answer"))
            tab.goto(live.address)
            page.until(f"{text('right')}.includes('the last answer')")
        page.until(f"{text('doing')}.includes('not connected')")
        with Live(live.server_port):
            page.until(f"{text('doing')}.includes('open the address')")
        assert "the last answer" in page.js(text("right"))
