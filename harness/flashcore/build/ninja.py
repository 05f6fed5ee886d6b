"""Runs ninja, and keeps what its commands say."""

from __future__ import annotations

import contextlib
import os
import re
import subprocess
from dataclasses import dataclass, field
from pathlib import Path

from flashcore.build import cache_key
from flashcore.machine import toolchain
from flashcore.model.progress import ProgressLine, Say

#: Lines that ptxas -v prints about every kernel; they never explain a failure.
_CHATTER = r"ptxas info|\s+\d+ bytes stack frame"
_COUNT = r"\[(\d+)/(\d+) "
MOST_CHARACTERS = 20_000  # of a compiler's output
_MOST_LINES = 2000
_END_S = 15  # that an interrupted ninja has for the compilers


@dataclass(frozen=True, slots=True)
class Output:
    """The output of ninja's commands, without progress: for failures, by ninja's ``FAILED`` line."""

    failures: dict[str, list[str]] = field(default_factory=dict)
    others: list[str] = field(default_factory=list)

    def of(self, folder: Path | None = None) -> str:
        """The message about the files of a folder; ``None``: about all failures, and ninja's."""
        parts = [lines for heading, lines in self.failures.items() if not folder or f"{folder}{os.sep}" in heading]
        text = "".join(line for lines in (*parts, *([] if folder else [self.others])) for line in lines)
        return text.strip()


def run(text: str, nvcc: toolchain.Nvcc, jobs: str, say: Say, *, verbose: bool = False) -> Output:
    """Runs a graph.

    Args:
        jobs: how many steps run at once; empty: as many as there are processors.
        verbose: show commands and their output.
    """
    # The graph is passed through a pipe, so that no file is left, however this process ends.
    command = [str(toolchain.find_tool("ninja")), "-f", "/dev/stdin", "-k", "0"]
    if verbose:
        command.append("-v")
    if jobs:
        command += ["-j", jobs]
    # In the form that _COUNT and the compiler log's reader expect.
    environment = {**os.environ, "NINJA_STATUS": "[%f/%t %es] ", "LC_ALL": "C.UTF-8"}
    for name in cache_key.STRAY:
        environment.pop(name, None)
    # nvcc of pip's toolkit finds its ptxas only if nvcc's folder is on PATH.
    environment["PATH"] = f"{nvcc.path.parent}{os.pathsep}{environment.get('PATH', '')}"
    result = Output()
    lines = result.others
    with subprocess.Popen(
        command,
        env=environment,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        errors="replace",
    ) as process:
        assert process.stdin is not None and process.stdout is not None
        try:
            with contextlib.suppress(BrokenPipeError):  # ninja's message explains it
                process.stdin.write(text)
                process.stdin.close()
            for line in process.stdout:
                if line.startswith("FAILED: "):
                    next(process.stdout, "")  # the command
                    lines = result.failures.setdefault(line, [])
                elif count := re.match(_COUNT, line):
                    say(ProgressLine(line.rstrip(), int(count[1]), int(count[2])))
                    lines = result.others
                else:
                    if verbose:
                        say(line.rstrip())
                    lines = result.others if line.startswith("ninja: ") else lines
                    if not re.match(_CHATTER, line) and len(lines) < _MOST_LINES:
                        lines.append(line[:MOST_CHARACTERS])
        except BaseException:
            process.terminate()  # ninja ends its compilers, whose process groups are not ours
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(_END_S)  # whoever waits for our end may kill ninja then
            raise
    return result
