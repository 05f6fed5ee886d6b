"""The names that a budget on compiler decisions may use; ``decisions.toml`` defines them and describes the fields."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path


@dataclass(frozen=True, slots=True)
class Meaning:
    """The instructions of a name."""

    sass: str
    archs: Sequence[int]
    ptx: str
    hint: str
    weaker: str = ""
    instead: str = ""


@cache
def meanings() -> Mapping[str, Meaning]:
    """Every name with its instructions."""
    table = tomllib.loads(Path(__file__).with_name("decisions.toml").read_text(encoding="utf-8"))
    return {name: Meaning(**row) for name, row in table.items()}
