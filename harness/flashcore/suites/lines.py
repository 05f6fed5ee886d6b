"""Finds the line of each table and key of a manifest, for messages; the TOML library does not provide them."""

from __future__ import annotations

import functools
import re
from collections.abc import Iterable
from pathlib import Path

_LONG = re.compile(r"\"{3}.*?\"{3}|'{3}.*?'{3}", re.DOTALL)
_NAME = r"""(?:[\w-]+|"[^"\n]*"|'[^'\n]*')"""
_LINE = re.compile(rf"\s*(?:\[(\[?)\s*({_NAME}(?:\s*\.\s*{_NAME})*)\s*\]|({_NAME}(?:\s*\.\s*{_NAME})*)\s*=)")


@functools.cache
def lines(text: str) -> dict[str, int]:
    """The line number of each table and key by path, such as ``budget[0].max``."""
    places: dict[str, int] = {}
    last: dict[str, int] = {}  # index of the last entry in each list of tables
    table = ""
    for number, line in enumerate(_LONG.sub(lambda m: "\n" * m[0].count("\n"), text).split("\n"), 1):
        if (match := _LINE.match(line)) is None:
            continue
        is_entry, header, key = match.groups()
        path = re.sub(r"\s*\.\s*|[\"']", lambda m: m[0].strip(" \t\"'"), header or key)
        if key:
            path = f"{table}.{path}".lstrip(".")
        else:
            outer = next((name for name in last if path.startswith(f"{name}.")), "")
            path = table = (outer and f"{outer}[{last[outer]}]") + path[len(outer) :]
            if is_entry:
                last[path] = last.get(path, -1) + 1
                table = f"{path}[{last[path]}]"
        places.setdefault(path, number)
        places.setdefault(table or path, number)
    return places


def located(file: str, text: bytes, *mistake: str) -> str:
    """A mistake prefixed by file and line: its key's, else those of the innermost table or list around it.

    Args:
        mistake: the key, and the message if there is one.
    """
    places = {p: n for p, n in lines(text.decode()).items() if f"{mistake[0]}.".startswith((f"{p}.", f"{p}["))}
    return f"{file}:{places[max(places, key=len)] if places else 1}: {': '.join(mistake)}"


def invalid(file: str, error: Exception) -> str:
    """The message for a file that is not valid TOML, with the line from the TOML library."""
    at = re.search(r"at line (\d+)", str(error))
    return f"{file}:{at[1] if at else 1}: not valid TOML: {error}"


def declaration(folder: Path, files: Iterable[str], variant: str) -> tuple[Path, str, int]:
    """The file that declares a variant or its sweep, the key and its line; if none does, the first existing file, an
    empty key and line 1."""
    paths = [folder / file for file in files]
    present = [*filter(Path.is_file, paths)]
    for path in present:
        for key, line in lines(path.read_text(encoding="utf-8", errors="replace")).items():
            template = re.fullmatch(r"variant\.([^.]+)", key)
            if template and re.fullmatch(re.sub(r"\\\{.*?\\\}", ".+", re.escape(template[1])), variant):
                return path, key, line
    return (present or paths)[0], "", 1
