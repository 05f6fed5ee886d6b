"""Runs of an older schema, read as if recorded by this one: a change of names alone, never of values.

Schema 1 knew one time without cold caches and called it ``warm``: the period of calls that are replayed back to
back. It ranked by that, so a converted suite does as well.
"""

from __future__ import annotations

import re
from typing import Any

from flashcore.model.record import SCHEMA_VERSION

#: The schemas that can be read.
READABLE = (1, SCHEMA_VERSION)
_FACT = re.compile(r"warm(_(?:p50|p90|p99|mean|std|samples))")
_SAMPLES = re.compile(r"(.+)/warm")


def header(data: Any) -> Any:
    """A run's header of schema 1 as one of today's; any other is left as it is, to be read or refused."""
    if not isinstance(data, dict) or data.get("schema_version") != 1:
        return data
    return {**_renamed(data), "schema_version": SCHEMA_VERSION}


def fact(name: str) -> str:
    """A fact's name of today."""
    return _FACT.sub(r"back_to_back\1", name) if name.startswith("warm_") else name


def samples(key: str) -> str:
    """A series' name of today."""
    return _SAMPLES.sub(r"\1/back_to_back", key)


def _renamed(value: Any) -> Any:
    """Facts are named all over a suite: in budgets, rules and predictions."""
    if isinstance(value, dict):
        return {k: _renamed(v) for k, v in value.items()}
    if isinstance(value, list):
        return [_renamed(v) for v in value]
    return fact(value) if isinstance(value, str) else value
