"""Tests mutants of one copy of the sources: ``mutation_worker.py COPY``, JSON lines in, JSON lines out.

A question is ``{"file": path within the copy, "text": the mutated text, "tests": [paths], "limit": seconds, "builds":
whether to use the suites that earlier questions built}``; with no text the file stays as it is. An answer is
``{"outcome": "passed" | "failed" | "timeout", "seconds", "said"}``.
Each question is answered by a fork of this process, which has imported what every test needs but nothing of the
copy: pytest starts in no time, and no mutant meets another. Imports nothing of flashcore.
"""

from __future__ import annotations

import importlib
import json
import os
import signal
import sys
import tempfile
import time
import traceback
from pathlib import Path
from typing import Any

AHEAD = ("pytest", "hypothesis", "pydantic", "jsonschema", "concurrent.futures", "csv", "gzip", "numpy")
#: Modules imported ahead, which pytest can no longer rewrite: none of them asserts. One test of a time is left out:
#: under load it fails whatever the code.
OPTIONS = (
    "-x", "-q", "-p", "no:cacheprovider", "-W", "ignore::pytest.PytestAssertRewriteWarning",
    "--hypothesis-seed=0", "-k", "not ten_thousand_cases",
)  # fmt: skip
_PASSED, _NONE_COLLECTED = 0, 5


def answer(copy: Path, question: dict[str, Any]) -> dict[str, Any]:
    """Puts the mutant in place, tests it in a fork, and puts the original back."""
    path = copy / question["file"]
    original = path.read_text(encoding="utf-8")
    for stale in path.parent.glob(f"__pycache__/{path.stem}.*"):
        stale.unlink()  # compiled of the text before; the mutant may have its size and its second
    began = time.monotonic()
    if question["text"] is not None:
        path.write_text(question["text"], encoding="utf-8")
    try:
        with tempfile.TemporaryFile() as output:
            process = os.fork()
            if process == 0:
                _test(copy, question, output.fileno())
            outcome = _wait(process, question["limit"])
            output.seek(0)
            words = output.read().decode(errors="replace")
    finally:
        path.write_text(original, encoding="utf-8")
    return {"outcome": outcome, "seconds": round(time.monotonic() - began, 3), "said": words[-1500:]}


def _test(copy: Path, question: dict[str, Any], output: int) -> None:
    """The fork's whole life."""
    code = 70
    try:
        os.setsid()
        os.dup2(output, 1)
        os.dup2(output, 2)
        os.chdir(copy)
        sys.path[:0] = [str(copy / "harness"), str(copy)]
        sys.dont_write_bytecode = True
        os.environ["PYTHONPATH"] = str(copy / "harness")
        os.environ["PYTHONDONTWRITEBYTECODE"] = "1"
        import pytest

        options = list(OPTIONS)
        if question["builds"]:  # as the workers of one run share them
            os.environ["PYTEST_XDIST_WORKER"] = "gw0"
            (shared := copy.with_name(f"{copy.name}-shared")).mkdir(exist_ok=True)
            options += ["--basetemp", str(shared / "gw0")]
        code = int(pytest.main([*options, *question["tests"]]))
    except BaseException:
        traceback.print_exc()
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)


def _wait(process: int, limit: float) -> str:
    end = time.monotonic() + limit
    while time.monotonic() < end:
        done, status = os.waitpid(process, os.WNOHANG)
        if done:
            code = os.waitstatus_to_exitcode(status)
            return "passed" if code == _PASSED else "none" if code == _NONE_COLLECTED else "failed"
        time.sleep(0.01)
    os.killpg(process, signal.SIGKILL)
    os.waitpid(process, 0)
    return "timeout"


def main() -> None:
    copy = Path(sys.argv[1])
    for name in AHEAD:
        importlib.import_module(name)
    answers = os.fdopen(os.dup(1), "w", encoding="utf-8")
    for line in sys.stdin:
        print(json.dumps(answer(copy, json.loads(line))), file=answers, flush=True)


if __name__ == "__main__":
    main()
