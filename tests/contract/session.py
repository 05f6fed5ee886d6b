"""Sessions of the contract: command lines with their exit codes and projections of what they print and write.

A file of ``sessions/`` has sessions of one area::

    [a_budget_fails]
    needs nvcc torch
    % NO_COLOR=1
    $ sed -i s/32/2/ suite/suite.toml
    1 verdicts        | gate --suite suite --build-dir build --format json
    2 match did.you   | gate --suite suite --variant plian

``[NAME]`` begins a session in a new folder. ``needs`` names parts of ``flashcore doctor``, after ``=`` how its detail
begins; ``standins`` are the GPUs of :mod:`tests.contract.standins`. ``%`` sets a variable of the environment, ``$`` is
for the shell. Any other line is an exit code, a projection (a function of :mod:`tests.contract.projections`, with its
words) and, after ``|``, the words of ``flashcore``; globs with a ``/`` are expanded.
"""

from __future__ import annotations

import contextlib
import glob
import io
import os
import re
import shlex
import subprocess
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from flashcore.cli.main import main
from tests.contract import projections

SESSIONS = Path(__file__).parent / "sessions"


@dataclass(frozen=True)
class Line:
    """One command: its exit code, the projection with its words, and the command's words."""

    code: int
    projection: tuple[str, ...]
    command: str


@dataclass(frozen=True)
class Session:
    """Lines that share a folder; a plain string is for the shell or the environment."""

    area: str
    name: str
    needs: tuple[str, ...]
    lines: tuple[Line | str, ...]


def sessions(area: str) -> list[Session]:
    """The sessions of a file, in its order.

    Raises:
        ValueError: a line is none of those above.
    """
    sections: dict[str, tuple[list[str], list[Line | str]]] = {}
    needs, lines = list[str](), list[Line | str]()
    for number, text in enumerate((SESSIONS / f"{area}.txt").read_text(encoding="utf-8").splitlines(), 1):
        if not text or text.startswith("#"):
            continue
        if text.startswith("["):
            needs, lines = sections.setdefault(text.strip("[]"), ([], []))
        elif text.startswith("needs "):
            needs += text.split()[1:]
        elif text.startswith(("$ ", "% ")):
            lines.append(text[2:])
        else:
            head, bar, command = text.partition(" | ")
            words = shlex.split(head)
            if not bar or not words[0].isdecimal() or not hasattr(projections, words[1]):
                raise ValueError(f"{area}.txt:{number}: expected CODE PROJECTION | COMMAND, found {text!r}")
            lines.append(Line(int(words[0]), tuple(words[1:]), command.strip()))
    return [Session(area, name, tuple(needs), tuple(lines)) for name, (needs, lines) in sections.items()]


@dataclass(frozen=True)
class Output:
    """What a command left: its exit code, standard output and error, in the folder where it ran."""

    code: int
    out: str
    err: str
    folder: Path


def run(command: str, folder: Path) -> Output:
    """Runs a command line in this process, whose working folder is ``folder``."""
    words = [name for word in shlex.split(command) for name in _expanded(word)]
    out, err = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        try:
            code = main(words)
        except SystemExit as end:
            code = end.code if isinstance(end.code, int) else 1
    return Output(code, out.getvalue(), err.getvalue(), folder)


def _expanded(word: str) -> list[str]:
    return sorted(glob.glob(word)) or [word] if "/" in word else [word]


def results(session: Session, folder: Path) -> tuple[list[Any], list[str]]:
    """Runs the lines in turn, in the working folder ``folder``.

    Returns:
        the projection of each command, below its exit code and words; and what differs from the session.
    """
    projected, wrong = list[Any](), list[str]()
    for line in session.lines:
        if isinstance(line, str) and (setting := re.fullmatch(r"(\w+)=(.*)", line)):
            os.environ[setting[1]] = setting[2].replace("$PWD", str(folder))
        elif isinstance(line, str):
            subprocess.run(["bash", "-euc", line], cwd=folder, check=True, capture_output=True)
        if isinstance(line, str):
            continue
        output = run(line.command, folder)
        text = f"flashcore {line.command}\n{output.out[-2000:]}{output.err[-2000:]}"
        if output.code != line.code:
            wrong.append(f"expected exit {line.code}, got {output.code}: {text}")
        name, *words = line.projection
        try:
            projected.append([f"{line.code} flashcore {line.command}", getattr(projections, name)(output, *words)])
        except (ValueError, LookupError, TypeError) as error:
            wrong.append(f"{name} {shlex.join(words)}: {error!r}: {text}")
    return projected, wrong
