"""The contract of ``flashcore mcp``: JSON-RPC over standard input and output."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tests.contract.conftest import compare
from tests.support.late import needs

pytestmark = needs("mcp")


class Client:
    """A server's process, and requests to it."""

    def __init__(self, *options: str) -> None:
        words = [sys.executable, "-P", "-m", "flashcore", "mcp", *options]
        self._process = subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        self._count = 0

    def ask(self, method: str, **parameters: Any) -> Mapping[str, Any]:
        """The result of a request.

        Raises:
            AssertionError: the server answers with an error, or ends.
        """
        self._count += 1
        self._send({"id": self._count, "method": method, "params": parameters})
        assert self._process.stdout
        for line in self._process.stdout:
            answer: dict[str, Any] = json.loads(line)
            if answer.get("id") == self._count:
                assert "result" in answer, answer
                result: dict[str, Any] = answer["result"]
                return result
        raise AssertionError("the server ended")

    def begin(self) -> Mapping[str, Any]:
        """Introduces the client."""
        client = {"name": "contract", "version": "1"}
        result = self.ask("initialize", protocolVersion="2025-06-18", capabilities={}, clientInfo=client)
        self._send({"method": "notifications/initialized"})
        return result

    def _send(self, message: Mapping[str, Any]) -> None:
        assert self._process.stdin
        self._process.stdin.write(json.dumps({"jsonrpc": "2.0", **message}) + "\n")
        self._process.stdin.flush()

    def end(self) -> int:
        """The exit code after its input ended."""
        with self._process:
            assert self._process.stdin
            self._process.stdin.close()
            return self._process.wait(60)


def test_a_client_lists_tools_and_calls_them(work: Path) -> None:
    client = Client("--root", ".", "--answer-bytes", "20000")
    server = client.begin()["serverInfo"]["name"]
    tools = sorted(tool["name"] for tool in client.ask("tools/list")["tools"])
    calls = {
        "list": ("list", {"suite": "suite"}),
        "outside": ("list", {"suite": "/etc"}),
        "host_code": ("check", {"suite": "suite"}),
        "unknown": ("gaet", {}),
    }
    answers = {}
    for case, (tool, arguments) in calls.items():
        answer = client.ask("tools/call", name=tool, arguments=arguments)
        answers[case] = [bool(answer.get("isError")), sorted(json.loads(answer["content"][0]["text"]))]
    compare("mcp", "tools", [{"server": server, "tools": tools, "answers": answers, "exit": client.end()}])
