"""Joins measured facts from a recorded run for cases whose code is unchanged.

So a machine without a GPU can report and gate: measurements are valid until a case's freshness key changes. Then they
are *stale*, and count as unmeasured.
"""

from __future__ import annotations

import json
import os
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import astuple, replace
from pathlib import Path
from typing import Any, NamedTuple

from flashcore.model.case import Case, TimeKey
from flashcore.model.cause import Cause
from flashcore.model.causes import (
    FILES_CHANGED,
    NEVER_MEASURED,
    NO_HOST_HASH,
    REFERENCE_CHANGED,
    SETTINGS_CHANGED,
    SOURCES_CHANGED,
    CodeChanged,
    OverReference,
)
from flashcore.model.files import content_hash, file_hash, text_hash
from flashcore.model.record import (
    Artifact,
    Built,
    CaseKey,
    CaseOutcome,
    Fact,
    Lazy,
    Listing,
    Origin,
    Plan,
    Reads,
    Record,
    Source,
    Subject,
    plans_for,
)
from flashcore.model.suite import CompiledCallable, Shape, Stage, Suite, Variant

#: The sources of facts that a stage records, and the stage.
MEASURED: Mapping[Source, Stage] = {
    Source.CHECK: "check",
    Source.EVENTS: "bench",
    Source.KERNEL: "bench",
    Source.NVML: "bench",
    Source.NCU: "profile",
    Source.SANITIZER: "sanitize",
}


def case_keys(
    suite: Suite,
    cases: Sequence[tuple[Variant, Shape]],
    artifacts: Sequence[Artifact],
    plans: Sequence[Plan],
    arch: str,
    nvcc: str,
) -> dict[Case, CaseKey]:
    """The freshness key of each case on ``arch``; cases that were not built have none."""
    root = Path(suite.root)
    built = {a.variant: a for a in artifacts if a.arch == arch and a.status == "ok"}
    launches = {case: [astuple(x) for x in p.launches] for case, p in plans_for(plans, arch).items()}
    problems = {name: file_hash(root / p.file) for name, p in suite.problems.items()}
    keys: dict[Case, CaseKey] = {}
    for variant, shape in cases:
        inputs: list[object] = [problems[variant.problem], sorted(shape.params.items()), variant.tolerance]
        artifact = built.get(variant.name)
        if variant.is_reference:
            key = CaseKey(file_hash(root / variant.kind.file), "", "", is_reference=True)
        elif artifact is None:
            continue
        elif isinstance(variant.kind, CompiledCallable):
            # The launches' code, grids and arguments cover everything that the Python code determines.
            code = artifact.calls.get(shape.name, "")
            key = CaseKey(code, artifact.source_hash, artifact.cxx, host=code, cxx=artifact.cxx)
        else:
            inputs.insert(0, launches.get(Case(variant.name, shape.name), []))
            key = CaseKey(artifact.code, artifact.source_hash, nvcc, host=artifact.host, cxx=artifact.cxx)
        contents = {part: getattr(key, part) for part in ("code", "source_hash", "host")}
        hashes: dict[str, Any] = {part: _hash([content, *inputs]) for part, content in contents.items() if content}
        settings = _hash([suite.problems[variant.problem].seeds, shape.repeats, shape.rank_by])
        keys[Case(variant.name, shape.name)] = replace(key, settings=settings, **hashes)
    return keys


def _hash(value: object) -> str:
    return text_hash(json.dumps(value))[:32]


def freshness(present: CaseKey, recorded: CaseKey | None) -> Cause | None:
    """Why the recorded facts do not apply to the present code; ``None`` if they do."""
    if recorded is None:
        return NEVER_MEASURED()
    if present.settings and recorded.settings not in ("", present.settings):
        return SETTINGS_CHANGED()
    if present.is_reference and recorded.is_reference:  # older runs have no hash of references
        return REFERENCE_CHANGED() if len({present.code, recorded.code} - {""}) > 1 else None
    if not (present.host and recorded.host):
        return NO_HOST_HASH("recorded" if present.host else "built")
    compilers = _other_compilers(present, recorded)
    if present.code != recorded.code:
        return CodeChanged("device", (), compilers)
    if present.host == recorded.host or (compilers and present.source_hash == recorded.source_hash):
        return None
    return SOURCES_CHANGED(compilers) if compilers else CodeChanged("host")  # both compilers make host code


def merged(reads: Iterable[Reads]) -> Reads:
    """The union of several reads. A file that was read with different content gets an empty hash."""
    union: dict[str, dict[str, str]] = {}
    for entry, files in (pair for one in reads for pair in one.items()):
        hashes = union.setdefault(entry, {})
        hashes |= {path: digest if hashes.get(path, digest) == digest else "" for path, digest in files.items()}
    return union


def changed_reads(recorded: Record, root: str) -> dict[str, tuple[str, ...]]:
    """The suite's Python files that read files which have changed since the run, with the changed files."""
    folder = os.path.realpath(root)
    changed = (
        (entry, tuple(file for file, digest in files.items() if content_hash(os.path.join(folder, file)) != digest))
        for entry, files in recorded.reads.items()
    )
    return {entry: files for entry, files in changed if files}


def reasons(
    recorded: Record, present: Mapping[Case, CaseKey], suite: Suite, built: Built | None = None
) -> dict[Case, Cause | None]:
    """For each case of the present suite, why the run's facts do not apply to it, or ``None``.

    Args:
        built: the present build, to tell what changed.
    """
    stale = {case: freshness(key, recorded.keys.get(case)) for case, key in present.items()}
    code = {case: reason for case, reason in stale.items() if isinstance(reason, CodeChanged)}
    if built and code:
        before = _parts(Built("", recorded.artifacts, recorded.plans), recorded.suite, recorded.gpu_arch)
        after = _parts(built, suite, recorded.gpu_arch)
        for case in code.keys() & before.keys() & after.keys():
            compilers = code[case].compilers
            parts = [part for part, value in after[case].items() if before[case][part] != value]
            different = [part for part in parts if not (compilers and part == "host code")] or ["problem"]
            stale[case] = CodeChanged(code[case].part, tuple(different), compilers)
    changed = changed_reads(recorded, suite.root)
    for case in (case for case, reason in stale.items() if not reason):
        variant, now = (of.variants[case.variant] for of in (recorded.suite, suite))
        problem = recorded.suite.problems[variant.problem]
        entries = (problem.file, variant.kind.file)
        if variant.is_reference and (variant.kind, variant.config) != (now.kind, now.config):
            stale[case] = REFERENCE_CHANGED()
        elif problem.arguments != suite.problems[now.problem].arguments:
            stale[case] = SETTINGS_CHANGED()
        elif files := {file for entry in entries for file in changed.get(entry, ())}:
            stale[case] = FILES_CHANGED(tuple(sorted(files)))
    return stale


def _parts(built: Built, suite: Suite, arch: str | None) -> dict[Case, dict[str, object]]:
    """By case, what its key covers besides the problem."""
    artifacts = {a.variant: a for a in built.artifacts if a.arch == arch}
    return {
        case: {
            "device code": artifacts[case.variant].code,
            "host code": artifacts[case.variant].host,
            "launch plan": plan.launches,
            "launches": artifacts[case.variant].calls.get(case.shape),
            "parameters": suite.shapes[case.shape].params,
            "tolerance": suite.variants[case.variant].tolerance,
        }
        for case, plan in plans_for(built.plans, arch).items()
        if case.variant in artifacts and case.shape in suite.shapes
    }


def _other_compilers(present: CaseKey, recorded: CaseKey) -> tuple[tuple[str, str, str], ...]:
    both = (("device", recorded.nvcc, present.nvcc), ("host", recorded.cxx, present.cxx))
    return tuple((part, then, now) for part, then, now in both if then != now)


class Joined(NamedTuple):
    """The contribution of a recorded run: results of fresh cases, the reasons of stale ones, the facts' origin."""

    facts: list[Fact]
    outcomes: list[CaseOutcome]
    raw_samples: dict[TimeKey, tuple[float, ...]]
    stale: dict[Case, Cause]
    origin: Origin | None
    listings: Lazy[Listing]
    reads: Reads


def join(
    recorded: Record,
    present: Mapping[Case, CaseKey],
    measured: set[tuple[Case, str]],
    suite: Suite,
    counted: Collection[Subject] = (),
    built: Built | None = None,
) -> Joined:
    """Joins the fresh results of a recorded run. Its facts are read only if it has a fresh outcome.

    Args:
        measured: (case, stage) that need not be joined, because the present or a newer run measured them.
        suite: the present one.
        counted: the launches whose waves the present or a newer run has.
        built: see :func:`reasons`.

    Raises:
        RecordError: the facts cannot be read.
    """
    stale = reasons(recorded, present, suite, built)
    fresh = {case for case, reason in stale.items() if reason is None}
    here = {case for case, _ in measured}

    def joins(case: Case, stage: Stage) -> bool:
        return case in fresh and (case, stage) not in measured

    def joins_fact(fact: Fact) -> bool:
        if fact.name == "waves":  # they depend on the plan and on the GPU's number of SMs
            return fact.subject.case in fresh and fact.subject.arch == recorded.gpu_arch and fact.subject not in counted
        stage = MEASURED.get(fact.source)
        return stage is not None and fact.subject.case is not None and joins(fact.subject.case, stage)

    def over_present(fact: Fact) -> Fact:
        """The fact; without its value if it is a ratio over what has changed, or is no longer the baseline."""
        if not isinstance(fact.detail, OverReference):
            return fact
        reference = fact.detail.reference
        is_other = fact.name.startswith("speedup_vs_baseline") and reference != suite.baseline
        has_changed = is_other or stale.get(Case(reference, fact.subject.shape or ""))
        return replace(fact, value=None, detail=REFERENCE_CHANGED()) if has_changed else fact

    outcomes = [replace(o, origin=o.origin or recorded.id) for o in recorded.outcomes if joins(o.case, o.stage)]
    facts = [over_present(fact) for fact in (recorded.facts if outcomes else ()) if joins_fact(fact)]
    origin = None
    if facts:
        gpu = recorded.gpu or "unknown GPU"
        what = f"{len(facts)} facts of {len({f.subject.case for f in facts})} cases"
        others = {o for c in fresh for o in _other_compilers(present[c], recorded.keys[c])}
        origin = Origin(recorded.id, gpu, recorded.gpu_arch or "", what, tuple(sorted(others)))
    profiled = {case for case in fresh if joins(case, "profile")}  # evaluated now, because `measured` grows
    changed = changed_reads(recorded, suite.root) if outcomes else recorded.reads
    return Joined(
        facts,
        outcomes,
        raw_samples={k: v for k, v in recorded.raw_samples.items() if joins(k[0], "bench")},
        stale={c: reason for c, reason in stale.items() if reason and c not in here},
        origin=origin,
        listings=Lazy(lambda: (x for x in recorded.listings if x.subject.case in profiled)),
        reads={entry: files for entry, files in recorded.reads.items() if entry not in changed},
    )
