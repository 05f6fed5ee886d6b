"""Makes standard output and error safe: colors only on terminals, closed pipes, unusual encodings, control
characters in foreign text."""

from __future__ import annotations

import io
import os
import re
import sys
from typing import Any, TextIO

from flashcore.model.text import visible

#: Color → the outcome words to paint, at the beginning of a line or as a table cell.
_WORDS = {
    "31": "fail|failed|FAILED|missing|worse|slower|wrong",
    "33": "unmeasured|stale|waived|skipped|undecided",
    "32": "pass|passed|ok|better|faster",
}
_CELLS = re.compile(f"(?m)(?:^|(?<=  )|(?<=^gate ))(?:{'|'.join(f'({w})' for w in _WORDS.values())})(?=  |[:,]| \\(|$)")

_COMMAND = re.compile(r"(?m)^\s*::|##\w*\[")


def is_rich(stream: TextIO) -> bool:
    """Whether ``stream`` is a terminal with control sequences."""
    return stream.isatty() and os.environ.get("TERM") != "dumb"


def painted(text: str) -> str:
    """The text with outcome words in color, if standard output is a terminal and ``NO_COLOR`` is not set."""
    if not is_rich(sys.stdout) or os.environ.get("NO_COLOR"):
        return text
    colors = list(_WORDS)
    return Trusted(_CELLS.sub(lambda m: f"\x1b[{colors[(m.lastindex or 1) - 1]}m{m[0]}\x1b[0m", harmless(text)))


class _Tolerant(io.FileIO):
    """A file descriptor that drops all output after a failed write, and keeps the error."""

    error: OSError | None = None

    def write(self, data: Any) -> int:
        try:
            return super().write(data) if self.error is None else len(data)
        except OSError as error:
            self.error = error
            return len(data)


class Trusted(str):
    """Text from this package, whose control characters and code host commands are not removed."""

    def __str__(self) -> str:  # for print
        return self


class Drawing:
    """A stream for a library that draws with control characters; the text in it must be :func:`harmless`."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream

    def write(self, text: str) -> int:
        return self._stream.write(Trusted(text))

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)


class _Sanitized(io.TextIOWrapper):
    """A stream on which foreign text, such as a compiler's output, has no effect on the terminal or code host."""

    def write(self, text: str) -> int:
        return super().write(text if isinstance(text, Trusted) else harmless(text))


def harmless(text: str) -> str:
    """The text without control characters and, on GitHub Actions, without workflow commands."""
    return uncommanded(text) if os.environ.get("GITHUB_ACTIONS") else visible(text)


def uncommanded(text: str) -> str:
    """The text without control characters and code host commands: ``::error`` at the beginning of a line, ``##[group]``
    anywhere."""
    return _COMMAND.sub(lambda m: m[0].replace("::", ": :").replace("##", "# #"), visible(text))


def harden() -> None:
    """Makes writes to standard output and error never raise, so that the exit code does not depend on a reader that
    closes the pipe (``flashcore gate | head``) or on an encoding without an arrow."""
    for name in ("stdout", "stderr"):
        if (old := getattr(sys, name)) is None:  # closed by the parent process
            setattr(sys, name, open(os.devnull, "w", encoding="utf-8"))  # noqa: SIM115
        elif old is getattr(sys, f"__{name}__"):  # otherwise it is already replaced
            old.flush()
            raw = _Tolerant(old.fileno(), "w", closefd=False)
            buffered = io.BufferedWriter(raw)
            lines = name == "stderr" or old.isatty()
            new = _Sanitized(buffered, old.encoding, "backslashreplace", line_buffering=lines)
            setattr(sys, name, new)


def lost() -> str:
    """Why standard output lost text; empty if it did not, or if its reader closed the pipe."""
    sys.stdout.flush()
    raw = getattr(getattr(sys.stdout, "buffer", None), "raw", None)
    error = raw.error if isinstance(raw, _Tolerant) else None
    return "" if error is None or isinstance(error, BrokenPipeError) else str(error.strerror)
