"""What a budget on compiler decisions may name; ``decisions.toml`` has the names and describes the fields."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path

#: A name, and how many of its instructions there must be at least: ``4 ldg.128``.
REQUIRED = re.compile(r"(?:([1-9][0-9]*) )?(\S+)")


@dataclass(frozen=True, slots=True)
class Meaning:
    """The instructions of a name."""

    sass: str
    archs: tuple[int, int]
    ptx: str
    hint: str
    weaker: str = ""
    instead: str = ""

    def is_on(self, arch: str) -> bool:
        """Whether the arch (``sm_90a``) has it."""
        return self.archs[0] <= int(re.sub(r"\D", "", arch)) <= self.archs[1]


@cache
def meanings() -> Mapping[str, Meaning]:
    """Every name with its instructions."""
    table = tomllib.loads(Path(__file__).with_name("decisions.toml").read_text(encoding="utf-8"))
    return {name: Meaning(**{**row, "archs": tuple(row["archs"])}) for name, row in table.items()}


def counted(required: str) -> tuple[int, str]:
    """The number and the name in ``4 ldg.128``; 1 without a number."""
    match = REQUIRED.fullmatch(required)
    return (int(match[1] or 1), match[2]) if match else (1, required)


def hint(missed: str) -> str:
    """What to do about a name that does not hold (``4 ldg.128``, ``no local``); empty for one that is not listed."""
    meaning = meanings().get(counted(missed.removeprefix("no "))[1])
    return meaning.hint if meaning else ""
