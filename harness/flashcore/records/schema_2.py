"""Runs of schema 2, whose notes and reasons were prose: maps them to causes. Only this module reads that prose.

A note that no program decided by, and that has no form here, becomes a :class:`~flashcore.model.causes.Message`.
"""

from __future__ import annotations

import contextlib
import re
from collections.abc import Callable
from dataclasses import asdict
from functools import cache
from typing import Any

from flashcore.model import causes as c
from flashcore.model.suite import ImportedKernel, kind_of
from flashcore.readers.compiler_log import compile_failed

VERSION = 2


@cache  # most notes are the same
def cause(reason: str) -> c.Cause:
    """The cause that a reason of schema 2 names."""
    return _matched(reason, _CAUSES) or c.Message(reason)


# A group has the name of a field, and its text is read as that field's type; what is there is true.
_CAUSES: tuple[tuple[str, type[c.Cause]], ...] = (
    (r"(?P<chip>\S+) has no such metric", c.NoCounter),
    (r"baseline (?P<reference>\S+) was not timed", c.ReferenceNotTimed),
    (r"no peer was timed on this shape", c.ReferenceNotTimed),
    (r"events around each of (?P<calls>\d+) calls, less the median of empty pairs: too few", c.TooFewCalls),
    (r"events around each of (?P<calls>\d+) calls, less the median of empty pairs: (?P<us>[\d.]+) µs, .*",
     c.BelowMedian),
    (r"NVML told nothing", c.NoNvml),
    (r"clusters of (?P<blocks>\d+) blocks: .*", c.ClusterUnknown),
    (r"ncu did not return it(?P<many_passes>: .*)?", c.NotReturned),
    (r"(?P<report>the report) does not have it", c.NotReturned),
    (r"ncu refused (?P<metric>\S+): (?P<message>.*)", c.CounterRefused),
    (r"(?P<evidence>cannot be: .*)", c.CounterContradicts),
    (r"(?P<profiled>there is no launch plan): .*", c.NoPlan),
    (r"the problem's work\(\) gives no (?P<name>\w+)", c.NoFormula),
    (r"no (?P<tool>nvdisasm) on this machine", c.NoTool),
    (r"(?P<tool>nvdisasm) could not read it", c.Unreadable),
    (r"no machine code to read", c.NoMachineCode),
    (r"one sample", c.OneSample),
    (r"void: (?P<count>\d+) other processes .*", c.OtherProcesses),
    (r"void: two clocks disagree: (?P<difference_us>[\d.]+) µs by difference, (?P<events_us>[\d.]+) µs by .*",
     c.ClocksDisagree),
    (r"no answer within (?P<seconds>[\d.e+]+) s(?: in step (?P<step>.*))?: hang\?", c.Hang),
    (r"skipped: hung on (?P<shape>\S+): (?P<because>.*)", c.HungBefore),
    (r"failed before: (?P<because>.*)", c.FailedBefore),
    (r"wrong on (?P<shape>\S+): (?P<because>.*)", c.WrongBefore),
    (r"did not compile for (?P<arch>\S+)", c.DidNotCompile),
    (r"not built for (?P<arch>\S+)", c.NotBuilt),
    (r"never measured", c.NeverMeasured),
    (r"stale: the peer's file or the problem changed", c.ReferenceChanged),
    (r"stale: (?P<part>recorded|built) without a hash of .*", c.NoHostHash),
    (r"stale: the (?P<part>device|host) code, .*", c.CodeChanged),
)  # fmt: skip
_BASES: tuple[tuple[str, type[c.Basis]], ...] = (
    (r"over (?P<reference>\S+), (?P<regime>\w+): medians of (?P<rounds>\d+) rounds, .*", c.OverReference),
    (r"cache(?:-control (?P<kept>none)| control unknown)", c.Caches),
    (r"(?P<samples>[\d,]+) samples of warps, standard error (?P<error>[\d.]+) points", c.Sampled),
    (r"worst on seed (?P<seed>\d+), kind (?P<kind>\w+)", c.WorstInput),
)  # fmt: skip
_READ: dict[str, Callable[[str], Any]] = {
    "int": int,
    "float": lambda text: float(text.replace(",", "")),
    "bool": lambda text: True,
    "bool | None": lambda text: True,
    "Cause": cause,
}
_SITE = re.compile(r"(.+):(\d+)\b.*")


@cache
def _basis(note: str) -> c.Basis | str:
    return _matched(note, _BASES) or note


def _matched(text: str, forms: tuple[tuple[str, type[c.Detail]], ...]) -> Any:
    for pattern, made in forms:
        if match := re.fullmatch(pattern, text, re.DOTALL):
            types = made.__annotations__
            groups = {k: t and _READ.get(types[k], str)(t) for k, t in match.groupdict().items()}
            return made(**{k: v for k, v in groups.items() if v is not None or not hasattr(made, k)})
    return None


def header(run: dict[str, Any], present: int) -> dict[str, Any]:
    """A run's header as one of the present schema; the header's form then says what is wrong with it."""
    with contextlib.suppress(LookupError, TypeError, AttributeError):
        for artifact in run["artifacts"]:
            message, status = artifact.pop("message"), artifact["status"]
            unsupported = c.UnsupportedArch(reason=message) if status == "unsupported" else None
            artifact["cause"] = compile_failed(message) if status == "failed" else unsupported
        for plan in run["plans"]:
            error, crashed = plan.pop("error"), plan.pop("crashed", False)
            plan["cause"] = (c.Message(error) if crashed else c.PlanRefused(error)) if error else None
        for outcome in run["outcomes"]:
            reason = outcome.pop("reason")
            outcome["cause"] = cause(reason) if outcome["status"] != "ok" else None
        for stage in run["stages"]:
            reason = stage.pop("reason")
            stage["detail"] = cause(reason) if stage["status"] != "ok" else reason
        _declare_kinds(run["suite"])
        run["stale"] = {case: c.as_json(_stale(reason)) for case, reason in run["stale"].items()}
    return {**run, "schema_version": present}


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


def _stale(reason: str) -> c.Stale:
    stale = cause(reason)
    return stale if isinstance(stale, c.Stale) else c.SourcesChanged(())


def facts(data: dict[str, Any]) -> dict[str, Any]:
    """The facts of a run as those of the present schema, their details in place."""
    rows = data["facts"]
    for row in rows:
        row[5] = detail(row[1], row[2], row[5])
    return {**data, "details": []}


def detail(name: str, value: Any, note: str) -> c.Detail | str:
    """What a fact's note told: of an unmeasured fact its cause, of a measured one how, or else the note."""
    if value is None:
        return cause(note)
    if name == "local_memory_site" and (site := _SITE.fullmatch(value)):
        return c.SourceLine(site[1], int(site[2]))
    return _basis(note) if note else note
