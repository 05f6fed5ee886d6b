"""The names that a budget on compiler decisions may use, with their instructions: ``compiler_decisions.toml``."""

from __future__ import annotations

import tomllib
from functools import cache
from pathlib import Path
from typing import NamedTuple


class Meaning(NamedTuple):
    """The instructions of a name."""

    sass: str
    weaker: str = ""
    instead: str = ""
    archs: tuple[int, int] = (0, 999)
    ptx: str = ""
    hint: str = ""


@cache
def meanings() -> dict[str, Meaning]:
    """Every name with its instructions."""
    table = tomllib.loads(Path(__file__).with_name("compiler_decisions.toml").read_text(encoding="utf-8"))
    return {name: Meaning(**row) for name, row in table.items()}
