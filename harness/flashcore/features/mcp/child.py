"""Runs one command for a tool, in a process of its own, which ends when its standard input does.

Writes one JSON object: the ``result``, or the ``error``. What a suite's code prints goes to standard error.
"""

from __future__ import annotations

import contextlib
import io
import json
import os
import signal
import sys
import threading
from typing import Any

from flashcore.cli.main import parser, reason_of
from flashcore.errors import Exit, UsageError
from flashcore.machine import python_process


def main() -> None:
    """Runs the command of this process's arguments."""
    out = python_process.answers()
    threading.Thread(target=_interrupt_at_end, args=(os.dup(0),), daemon=True).start()
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    try:
        message = {"result": _result(sys.argv[1:])}
    except KeyboardInterrupt:
        sys.exit(Exit.INTERRUPTED)
    except Exception as error:
        message = {"error": described(error, sys.argv[1])}
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the server closes the pipe when it has read this
    json.dump(message, out, allow_nan=False)
    out.flush()


def _result(words: list[str]) -> dict[str, Any]:
    """The command's JSON, with its exit code, without the verdicts that pass."""
    printed, refused = io.StringIO(), io.StringIO()
    try:
        with contextlib.redirect_stderr(refused):
            arguments = parser(words).parse_args(words)
    except SystemExit:
        raise UsageError(refused.getvalue().strip().splitlines()[-1]) from None
    with contextlib.redirect_stdout(printed):
        code = arguments.run(arguments)
    text = printed.getvalue()
    data: dict[str, Any] = json.loads(text[max(0, text.find("\n{")) if text[:1] != "{" else 0 :])
    if "verdicts" in data:
        data["verdicts"] = [verdict for verdict in data["verdicts"] if verdict["status"] != "pass"]
    return {**data, "exit_code": int(code)}


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


def _interrupt_at_end(given: int) -> None:
    """Interrupts this process and its compilers, as Ctrl-C would, when the server closes the pipe or ends."""
    os.read(given, 1)
    os.killpg(0, signal.SIGINT)


if __name__ == "__main__":
    main()
