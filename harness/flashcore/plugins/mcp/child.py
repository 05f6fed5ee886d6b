"""Runs one tool in a process of its own, which ends when its standard input does.

Reads one line, ``{"tool", "arguments", "roots"}``. Writes JSON lines: ``{"progress": text}`` and at last ``{"result"}``
or ``{"error"}``. What a suite's code prints goes to standard error.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import threading
from pathlib import Path
from typing import IO, Any

from flashcore.cli.main import reason_of
from flashcore.errors import Exit
from flashcore.pipeline import plugins
from flashcore.plugins.mcp.tools import TOOLS


def main() -> None:
    """Serves the request on standard input."""
    given, out = os.fdopen(os.dup(0)), os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    os.dup2(2, 1)
    request, lock = json.loads(given.readline()), threading.Lock()
    threading.Thread(target=_interrupt_at_end, args=(given,), daemon=True).start()

    def put(**message: Any) -> None:
        with lock:
            print(json.dumps(message, allow_nan=False), file=out, flush=True)

    try:
        plugins.load()  # facts and causes
        roots = [Path(root) for root in request["roots"]]
        tool = TOOLS[request["tool"]].model_validate(request["arguments"], context=roots)
        message = {"result": tool.run(lambda text: put(progress=str(text)))}
    except KeyboardInterrupt:
        sys.exit(Exit.INTERRUPTED)
    except Exception as error:
        message = {"error": described(error, request["tool"])}
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the server closes the pipe when it has read this
    put(**message)


def described(error: Exception, tool: str) -> dict[str, Any]:
    """The error as data. ``message`` is for people."""
    reason = reason_of(error, tool)
    if reason is None:
        sys.excepthook(type(error), error, error.__traceback__)
    return {
        "type": type(reason or error).__name__,
        "message": str(reason or error),
        "hint": getattr(reason, "hint", "") if reason else "a defect of flashcore: report it with the server's log",
        "mistakes": getattr(reason, "mistakes", []),
        "exit_code": reason.exit_code if reason else Exit.INCAPABLE,
    }


def _interrupt_at_end(given: IO[str]) -> None:
    """Interrupts this process and its compilers, as Ctrl-C would, when the server closes the pipe or ends."""
    given.read()
    os.killpg(0, signal.SIGINT)


if __name__ == "__main__":
    main()
