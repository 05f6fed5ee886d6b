"""Standard output and error in their varieties: a terminal with colours, a pipe whose reader closes it, an odd
encoding."""

from __future__ import annotations

import io
import os
import re
import sys
from typing import Any, TextIO

from flashcore.model.text import visible

#: Words for an outcome, where they begin a line or fill a cell of a table, and their colours.
_WORDS = {
    "31": "fail|failed|FAILED|missing|worse|slower|wrong",
    "33": "unmeasured|stale|waived|skipped|undecided",
    "32": "pass|passed|ok|better|faster",
}
_CELLS = re.compile(f"(?m)(?:^|(?<=  )|(?<=^gate ))(?:{'|'.join(f'({w})' for w in _WORDS.values())})(?=  |[:,]| \\(|$)")

_COMMAND = re.compile(r"(?m)^\s*::|##\w*\[")


def is_rich(stream: TextIO) -> bool:
    """Whether it is a terminal that can do more than print one line after the other."""
    return stream.isatty() and os.environ.get("TERM") != "dumb"


def painted(text: str) -> str:
    """The text with its verdicts in colours, if standard output is a terminal that shows some (``NO_COLOR``: none)."""
    if not is_rich(sys.stdout) or os.environ.get("NO_COLOR"):
        return text
    colours = list(_WORDS)
    return Trusted(_CELLS.sub(lambda m: f"\x1b[{colours[(m.lastindex or 1) - 1]}m{m[0]}\x1b[0m", harmless(text)))


class _Sturdy(io.FileIO):
    """A file descriptor that, once a write has failed, drops the rest and keeps the error."""

    why: OSError | None = None

    def write(self, data: Any) -> int:
        try:
            return super().write(data) if self.why is None else len(data)
        except OSError as error:
            self.why = error
            return len(data)


class Trusted(str):
    """Text of ours, whose control characters a terminal obeys, and whose commands a code host."""

    def __str__(self) -> str:  # for print
        return self


class Drawing:
    """A stream for a library that draws with control characters, of text that is :func:`harmless`."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream

    def write(self, text: str) -> int:
        return self._stream.write(Trusted(text))

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)


class _Plain(io.TextIOWrapper):
    """A stream on which no foreign text, such as a compiler's output, may act."""

    def write(self, text: str) -> int:
        return super().write(text if isinstance(text, Trusted) else harmless(text))


def harmless(text: str) -> str:
    """The text without control characters; in a log that a code host interprets, without commands."""
    return uncommanded(text) if os.environ.get("GITHUB_ACTIONS") else visible(text)


def uncommanded(text: str) -> str:
    """The text without control characters and commands to code hosts: ``::error`` at the beginning of a line,
    ``##[group]`` anywhere."""
    return _COMMAND.sub(lambda m: m[0].replace("::", ": :").replace("##", "# #"), visible(text))


def harden() -> None:
    """From now on no write to standard output or error raises: the exit code depends on the command's result, not on a
    reader that closes the pipe (``flashcore gate | head``) or on an encoding without an arrow."""
    for name in ("stdout", "stderr"):
        if (old := getattr(sys, name)) is None:  # closed by the parent process
            setattr(sys, name, open(os.devnull, "w", encoding="utf-8"))  # noqa: SIM115
        elif old is getattr(sys, f"__{name}__"):  # else it was already replaced
            old.flush()
            raw = _Sturdy(old.fileno(), "w", closefd=False)
            buffered = io.BufferedWriter(raw)
            lines = name == "stderr" or old.isatty()
            new = _Plain(buffered, old.encoding, "backslashreplace", line_buffering=lines)
            setattr(sys, name, new)


def lost() -> str:
    """Why standard output did not take all that was written; empty if it did, or if its reader closed the pipe."""
    sys.stdout.flush()
    raw = getattr(getattr(sys.stdout, "buffer", None), "raw", None)
    why = raw.why if isinstance(raw, _Sturdy) else None
    return "" if why is None or isinstance(why, BrokenPipeError) else str(why.strerror)
