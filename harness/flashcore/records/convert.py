"""Runs of an older schema, read as if recorded by this one: a change only of names, never of values.

Schema 1 had one time without cold caches and called it ``warm``: the launch-to-launch time of calls that are replayed
back to back. It ranked by that, and a converted suite does so too. Its percentiles of such means are left out, and
promises about them are unmeasured: they say nothing about single calls.
"""

from __future__ import annotations

import contextlib
import re
from dataclasses import asdict
from typing import Any

from flashcore.model.record import SCHEMA_VERSION
from flashcore.model.suite import ImportedKernel, kind_of

#: The schemas that can be read.
READABLE = (1, SCHEMA_VERSION)
_OF_CALLS = re.compile(r"warm_(p90|p99)")
_LEFT_OUT = ("warm_p90", "warm_p99", "eager_p90", "eager_p99")
_FACT = re.compile(r"warm_(p50|mean|std|samples)")
_SAMPLES = re.compile(r"(.+)/warm")


def header(data: Any) -> Any:
    """A run's header of schema 1 as one of today's; any other is left as it is, to be read or refused."""
    if isinstance(data, dict):
        with contextlib.suppress(LookupError, TypeError, AttributeError):  # then the form says what is wrong with it
            _declare_kinds(data["suite"])
    if not isinstance(data, dict) or data.get("schema_version") != 1:
        return data
    run = {**_renamed(data), "schema_version": SCHEMA_VERSION}
    with contextlib.suppress(LookupError, TypeError, AttributeError):  # then the form says what is wrong with it
        for shape in run["suite"]["shapes"].values():
            shape["rank_by"] = "back_to_back"
    return run


def _declare_kinds(suite: dict[str, Any]) -> None:
    """Replaces the keys that a manifest has by the kind of each variant; schema 2 knew one language."""
    suite.pop("spaces", None)  # now a table of a plugin; what is recorded of it is in studies
    if release := suite.pop("triton", ""):
        suite["languages"] = {"triton": release}
    for variant in suite["variants"].values():
        if "kind" not in variant:
            entry = {key: variant.pop(key, None) for key in ("source", "callable", "cubins", "plan", "kernel")}
            kind = ImportedKernel(entry["kernel"]) if entry["kernel"] else kind_of(entry, ("triton",))
            variant["kind"] = asdict(kind)


def fact(name: str) -> str | None:
    """A fact's name of today; ``None`` of one that is left out."""
    return None if name in _LEFT_OUT else _FACT.sub(r"back_to_back_\1", name) if name.startswith("warm_") else name


def samples(key: str) -> str:
    """A series' name of today."""
    return _SAMPLES.sub(r"\1/back_to_back", key)


def _renamed(value: Any) -> Any:
    """Facts are named all over a suite: in budgets, rules and predictions."""
    if isinstance(value, dict):
        return {k: _renamed(v) for k, v in value.items()}
    if isinstance(value, list):
        return [_renamed(v) for v in value]
    if not isinstance(value, str) or not value.startswith("warm_"):
        return value
    return fact(value) or _OF_CALLS.sub(r"isolated_\1", value)
