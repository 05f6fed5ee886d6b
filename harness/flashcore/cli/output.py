"""Writes a command's output to the targets of ``--format FORMAT[=FILE]``, and makes its JSON: one object, with the
format's ``version`` and the ``tool`` that wrote it.

Adding keys keeps the version; changing or removing one increments it. Unmeasured values are ``null``, next to a reason.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Collection, Sequence
from pathlib import Path
from typing import Any

from flashcore import __version__
from flashcore.cli import terminal
from flashcore.errors import UsageError
from flashcore.model.files import make_folder, write_atomically
from flashcore.model.groups import picked as picked
from flashcore.model.text import did_you_mean, visible

VERSION = 1


def parse(requested: Sequence[str], available: Collection[str]) -> list[tuple[str, str | None]]:
    """Parses each ``FORMAT`` or ``FORMAT=FILE`` to (format, file). Adds the table if no format goes to standard output.

    Raises:
        UsageError: a format is unknown, or two go to standard output or the same file.
    """
    outputs: list[tuple[str, str | None]] = []
    for text in requested:
        form, equals, file = text.partition("=")
        if form not in available or (equals and not file):
            near = did_you_mean(form, available)
            raise UsageError(f"--format {text}: expected {', '.join(available)}, or one of them with =FILE{near}")
        outputs.append((form, file or None))
    targets = [file for _, file in outputs]
    if len(set(targets)) < len(targets):
        raise UsageError(f"--format {' '.join(requested)}: expected one format per file and for standard output")
    return outputs if None in targets else [*outputs, ("table", None)]


def write(text: str, file: str | None) -> None:
    """Writes to standard output, or into a file, completely or not at all.

    Raises:
        FlashcoreError: the file cannot be written.
    """
    plain = visible(text.encode("utf-8", "replace").decode())  # lone surrogates cannot be encoded
    if file is None:
        trusted = isinstance(text, terminal.Trusted)
        sys.stdout.write(terminal.Trusted(plain) if trusted else terminal.painted(plain))
        return
    make_folder(Path(file).parent)
    write_atomically(Path(file), plain.encode())


def add_format(parser: argparse.ArgumentParser) -> None:
    """Adds ``--format``. The docstring of the command's ``as_json`` documents the keys."""
    text = f"table, or json, format version {VERSION} (default: %(default)s)"
    parser.add_argument("--format", choices=("table", "json"), default="table", help=text)


def add_formats(parser: argparse.ArgumentParser, formats: Sequence[str] = ("table", "json")) -> None:
    """Adds ``--format`` for several outputs, which :func:`parse` reads: a table, or JSON as in :func:`add_format`."""
    text = f"{', '.join(formats)}, to standard output or FILE; repeatable (default: table)"
    parser.add_argument("--format", action="append", default=[], metavar="FORMAT[=FILE]", help=text)


def document(**content: Any) -> str:
    """The JSON document with this content."""
    head = {"version": VERSION, "tool": f"flashcore {__version__}"}
    return json.dumps({**head, **content}, indent=1, ensure_ascii=False, allow_nan=False)
