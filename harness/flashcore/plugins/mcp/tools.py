"""The tools: the arguments of each, checked before anything runs, and its answer as JSON data.

Paths are resolved, with the links below them, and must lie in one of the server's roots. A tool with ``host_code``
builds a suite or imports its Python files, which may do anything that the user may.
"""

from __future__ import annotations

import argparse
import itertools
import json
import os
import sys
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any, ClassVar

from pydantic import AfterValidator, BaseModel, Field, FiniteFloat, ValidationInfo
from pydantic_core import PydanticCustomError

from flashcore.cli import brief, doctor, main, options
from flashcore.cli import list as listing
from flashcore.errors import ManifestError
from flashcore.explain.predictions import Readings
from flashcore.gate.formats import as_json
from flashcore.gate.locate import Places
from flashcore.measure.context import Say
from flashcore.model import plugin
from flashcore.model.record import Record
from flashcore.pipeline.judging import Rules, judge_record
from flashcore.pipeline.run import record_run
from flashcore.records import lookup, store
from flashcore.suites.find import suite_folder
from flashcore.suites.load import load


def _in_roots(path: str, info: ValidationInfo) -> str:
    """The path without links, relative to the first root if it is in that."""
    roots: Any = info.context
    place = os.path.realpath(roots[0] / path)
    names = (os.path.join(folder, name) for folder, *both in os.walk(place) for part in both for name in part)
    for name in itertools.chain((place,), filter(os.path.islink, names)):  # nothing outside is walked
        if not any(Path(os.path.realpath(name)).is_relative_to(root) for root in roots):
            expected = f"a path in {' or '.join(map(str, roots))}, also through its links, such as {name}"
            raise PydanticCustomError("outside_roots", "{expected}", {"expected": expected})
    return str(os.path.relpath(place, roots[0]) if Path(place).is_relative_to(roots[0]) else place)


def _run_in_roots(name: str, info: ValidationInfo) -> str:
    roots: Any = info.context
    is_path = os.sep in name or (roots[0] / name).exists()
    return _in_roots(name, info) if is_path else name


_Path = Annotated[str, AfterValidator(_in_roots)]
_RunName = Annotated[str, AfterValidator(_run_in_roots), Field(description="a run's id, its prefix, or a path")]


class Tool(BaseModel, extra="forbid", validate_default=True):
    """A tool: its fields are its arguments, its docstring describes it to the model."""

    host_code: ClassVar[bool] = False

    def run(self, say: Say) -> Any:
        """The answer, a JSON object.

        Raises:
            FlashcoreError: as the command's.
        """
        raise NotImplementedError


class Doctor(Tool):
    """What this machine supports, and how to add what is missing."""

    def run(self, say: Say) -> Any:
        parts = doctor.examine()
        return json.loads(doctor.as_json(parts, doctor.abilities([part.name for part in parts if part.found])))


class List(Tool):
    """A suite's variants, shapes and budgets."""

    suite: _Path = Field(".", description="the suite's folder, relative to the first root")

    def run(self, say: Say) -> Any:
        return json.loads(listing.as_json(load(suite_folder(self.suite))))


class Check(Tool):
    """Builds a suite's variants, checks their answers on this GPU, and judges their budgets."""

    host_code = True
    suite: _Path = Field(".", description="the suite's folder, relative to the first root")
    variants: list[str] = Field([], description="globs of variants; none: all")
    shapes: list[str] = Field([], description="names of shapes; none: all")
    archs: list[str] = Field([], description="archs to build for; none: all")
    profiles: _Path = "profiles"
    build: _Path = "build"

    def run(self, say: Say) -> Any:
        command = type(self).__name__.lower()
        words = [command, f"--suite={self.suite}", f"--profiles={self.profiles}", f"--build-dir={self.build}"]
        words += options.selecting(self)
        sys.argv[1:] = words  # the run records its command
        settings = options.settings(main.parser(words).parse_args(words), upto=command)
        record = record_run(settings, say, needed=command != "profile").record
        rules = Rules(**options.selected(self))
        return {"run": record.id, "cases": [*_outcomes(record)]} | _gate(record, rules)


class Bench(Check):
    """Builds, checks and times a suite's variants on this GPU, and judges their budgets."""


class Profile(Check):
    """Builds, checks, times and profiles a suite's variants, and judges their budgets. Without a GPU: static facts."""


class _OfRun(Tool):
    profiles: _Path = Field("profiles", description="the folder of recorded runs")

    def record(self, name: str | None, *case: Sequence[str]) -> Record:
        return store.read(lookup.find(Path(self.profiles), name, *case))


class Explain(_OfRun):
    """A case of a recorded run in brief: is it right, its time, limiter, budgets, and what to change."""

    case: str = Field(description="VARIANT/SHAPE")
    recorded: _RunName | None = Field(
        None, alias="run", description="as of compare; none: the newest that has the case"
    )

    def run(self, say: Say) -> Any:
        record = self.record(self.recorded, *([name] for name in self.case.split("/")[:2]))
        return json.loads(brief.fitted(brief.brief(record, self.case), as_json=True))


class Compare(_OfRun):
    """What changed from one recorded run to another."""

    before: _RunName
    after: _RunName

    def run(self, say: Say) -> Any:
        compared = plugin.resolve("flashcore.plugins.compare.command:as_json")
        return json.loads(compared(self.record(self.before), self.record(self.after)))


class Audit(Tool):
    """The kernels in compiled files (wheels, libraries, cubins) with their static facts; nothing is run."""

    files: list[_Path] = Field(min_length=1, description="files or folders")
    kernel: str = Field("*", description="glob of kernels")
    maximum: dict[str, FiniteFloat] = Field({}, description="limits by fact, such as registers")

    def run(self, say: Say) -> Any:
        audit = plugin.resolve("flashcore.plugins.audit.command")
        content = audit.inventory(map(Path, self.files))
        record = audit.record_of(store.new_id(), content, name="audit", command="", seconds=0.0)
        given = argparse.Namespace(maximum=[*self.maximum.items()], minimum=[], exceptions=[], kernel=self.kernel)
        kernels = {kernel.name for kernel in content.kernels}
        suite, mistakes = audit.limits.limited(record.suite, audit.limits.AuditForm(), given, kernels)
        if mistakes:
            raise ManifestError("audit", mistakes)
        rows = [
            {"file": one.worst.variant, "arch": one.worst.arch, "kernel": one.worst.kernel}
            | {name: fact.note if fact.value is None else fact.value for name, fact in one.facts.items()}
            for one in audit.kernels.groups(record, self.kernel, each=True)
        ]
        return {"kernels": rows} | _gate(replace(record, suite=suite), Rules(compare=False))


class Judge(Tool):
    """Judges candidates: device code and launches, or sources, which a sandbox compiles. A candidate is accepted, with
    its times by shape, rejected with reasons, or unmeasured."""

    host_code = True
    suite: _Path = Field(".", description="the suite's folder, which is trusted")
    candidates: list[_Path] = Field(min_length=1, description="folders with candidate.json")
    verdicts: _Path = "verdicts"

    def run(self, say: Say) -> Any:
        judging = plugin.resolve("flashcore.plugins.judge.judging")
        write = plugin.resolve("flashcore.plugins.judge.verdict:write")
        suite = load(suite_folder(self.suite))
        made = judging.judge_all(suite, [*map(Path, self.candidates)], say)
        paths = [write(verdict, Path(self.verdicts)) for _, verdict in made]
        verdicts = [json.loads(path.read_bytes()) for path in paths]
        # Separate lists: a verdict on many shapes is longer than a page.
        parts = {
            key: [{"candidate": v["candidate"]} | one for v in verdicts for one in v.pop(key)]
            for key in ("shapes", "kernels")
        }
        return {"verdicts": verdicts} | parts


TOOLS: dict[str, type[Tool]] = {
    tool.__name__.lower(): tool for tool in (Doctor, List, Check, Bench, Profile, Explain, Compare, Audit, Judge)
}


def _outcomes(record: Record) -> Iterator[dict[str, Any]]:
    """Each case's outcome in each stage, those that failed first; of timed ones the time that ranks their shape."""
    readings = Readings(record)
    for o in sorted(record.outcomes, key=lambda o: o.status == "ok"):
        yield {"case": o.case, "stage": o.stage, "status": o.status, "why": o.reason}
        if o.stage == "bench":
            time = readings.of(record.suite.shapes[o.shape].time, o.variant, o.shape)
            yield {"case": o.case, "mode": record.suite.shapes[o.shape].rank_by, "us": time.value or time.why}


def _gate(record: Record, rules: Rules) -> dict[str, Any]:
    """The gate's JSON, without the verdicts that pass."""
    judged = judge_record(rules, record)
    data: dict[str, Any] = json.loads(as_json(judged.judgement, judged.record, Places(judged.record, Path())))
    return data | {"verdicts": [verdict for verdict in data["verdicts"] if verdict["status"] != "pass"]}
