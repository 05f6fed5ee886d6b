"""What ``--format json`` prints: one object, with the ``version`` of its form and the ``tool`` that wrote it.

A form may get new keys within a version; one that changes or loses a key gets a new version. What is not measured
is ``null``, with a reason beside it.
"""

from __future__ import annotations

import argparse
from typing import Any

VERSION = 1


def add_format(parser: argparse.ArgumentParser) -> None:
    """The option; its keys stand in the docstring of the command's ``as_json``."""
    parser.add_argument("--format", choices=("table", "json"), default="table",
                        help=f"table, or json in version {VERSION} of its form (default: %(default)s)")  # fmt: skip


def document(**content: Any) -> str:
    """The object as text."""
    import json

    from flashcore import __version__

    head = {"version": VERSION, "tool": f"flashcore {__version__}"}
    return json.dumps({**head, **content}, indent=1, ensure_ascii=False, allow_nan=False)


def picked(thing: Any, *names: str) -> dict[str, Any]:
    """Some of its attributes."""
    return {name: getattr(thing, name) for name in names}
