"""Takes measured facts over from a recorded run, for the cases whose code is still the same.

A machine without a GPU still reports and gates this way: what was measured stays valid as long as the freshness key of
a case does not change. What is not fresh is *stale* and counts as unmeasured.
"""

from __future__ import annotations

import ast
import functools
import hashlib
import json
import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import astuple, dataclass, replace
from pathlib import Path

from flashcore.model import cause_text
from flashcore.model.causes import (
    CodeChanged,
    FilesChanged,
    NeverMeasured,
    NoHostHash,
    ReferenceChanged,
    SettingsChanged,
    SourcesChanged,
    Stale,
)
from flashcore.model.record import (
    Artifact,
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
)
from flashcore.model.suite import CompiledCallable, Shape, Stage, Suite, Variant

#: The sources of facts that only a GPU can give, and the stage of each.
MEASURED: Mapping[Source, Stage] = {
    Source.CHECK: "check",
    Source.EVENTS: "bench",
    Source.KERNEL: "bench",
    Source.NVML: "bench",
    Source.NCU: "profile",
    Source.SANITIZER: "sanitize",
}

_COMPILED = (("device", "nvcc", "code"), ("host", "cxx", "host"))


def case_keys(
    suite: Suite,
    cases: Sequence[tuple[Variant, Shape]],
    artifacts: Sequence[Artifact],
    plans: Sequence[Plan],
    arch: str,
    nvcc: str,
) -> dict[str, CaseKey]:
    """The freshness key of each case on ``arch``; cases that were not built have none."""
    root = Path(suite.root)
    built = {a.variant: a for a in artifacts if a.arch == arch and a.status == "ok"}
    hosts = {a.variant: a for a in artifacts if a.host}  # the same for every arch
    launches = {(p.variant, p.shape): [astuple(x) for x in p.launches] for p in plans}
    problems = {name: module_hash(root / p.file) for name, p in suite.problems.items()}
    keys: dict[str, CaseKey] = {}
    for variant, shape in cases:
        case: list[object] = [problems[variant.problem], sorted(shape.params.items()), variant.tolerance]
        artifact = built.get(variant.name)
        if variant.is_reference:
            key = CaseKey(_hash([module_hash(root / variant.kind.file), *case]), "", "", peer=True)
        elif artifact is None:
            continue
        elif isinstance(variant.kind, CompiledCallable):
            # A launch's code, grid and arguments: all that the Python code determines.
            code = _hash([artifact.calls.get(shape.name, ""), *case])
            key = CaseKey(code, _hash([artifact.closure, *case]), artifact.cxx, host=code, cxx=artifact.cxx)
        else:
            case.insert(0, launches.get((variant.name, shape.name), []))
            host = hosts.get(variant.name, artifact)
            key = CaseKey(
                code=_hash([artifact.code, *case]),
                closure=_hash([artifact.closure, *case]),
                nvcc=nvcc,
                host=_hash([host.host, *case]) if host.host else "",
                cxx=host.cxx,
            )
        settings = _hash([suite.problems[variant.problem].seeds, shape.repeats, shape.rank_by])
        keys[f"{variant.name}/{shape.name}"] = replace(key, settings=settings)
    return keys


def module_hash(file: Path) -> str:
    """The hash of a Python file, with the modules in its folder that it imports, directly or not."""
    texts: dict[Path, bytes] = {}
    todo = [file]
    while todo:
        path = todo.pop()
        texts[path] = path.read_bytes()
        modules = (file.parent / f"{name}{end}" for name in _imported(texts[path]) for end in (".py", "/__init__.py"))
        todo += [p for p in modules if p not in texts and p.is_file()]
    digest = hashlib.sha256(texts.pop(file)).hexdigest()
    imported = [(p.name, hashlib.sha256(text).hexdigest()) for p, text in sorted(texts.items())]
    return _hash([digest, *imported]) if imported else digest


def _imported(text: bytes) -> set[str]:
    """The first names of what a module imports, anywhere in it; of text that is no Python, nothing."""
    try:
        nodes = list(ast.walk(ast.parse(text)))
    except (SyntaxError, ValueError):
        return set()
    names = [a.name for n in nodes if isinstance(n, ast.Import) for a in n.names]
    names += [n.module for n in nodes if isinstance(n, ast.ImportFrom) and n.module and not n.level]
    return {name.partition(".")[0] for name in names}


def _hash(value: object) -> str:
    return hashlib.sha256(json.dumps(value).encode()).hexdigest()[:32]


def freshness(present: CaseKey, recorded: CaseKey | None) -> Stale | None:
    """Why the recorded facts are not about the present code; ``None`` if they are."""
    if recorded is None:
        return NeverMeasured()
    if present.settings and recorded.settings not in ("", present.settings):
        return SettingsChanged()
    if present.peer and recorded.peer:  # those of runs before this was recorded have no hash
        same = not (present.code and recorded.code) or present.code == recorded.code
        return None if same else ReferenceChanged()
    if not (present.host and recorded.host):
        return NoHostHash("recorded" if present.host else "built")
    for part, compiler, code in _COMPILED:
        same = getattr(present, compiler) == getattr(recorded, compiler)
        if same and getattr(present, code) != getattr(recorded, code):
            return CodeChanged(part)
    compilers = _other_compilers(present, recorded)
    return SourcesChanged(compilers) if compilers and present.closure != recorded.closure else None


def file_hash(path: str | Path) -> str:
    """The SHA-256 of a file; empty if there is none."""
    if not os.path.isfile(path):
        return ""
    with open(path, "rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()


def merged(reads: Iterable[Reads]) -> Reads:
    """All files of several reads. One that had different content has no hash: it changed meanwhile."""
    union: dict[str, dict[str, str]] = {}
    for entry, files in (pair for one in reads for pair in one.items()):
        hashes = union.setdefault(entry, {})
        hashes |= {path: digest if hashes.get(path, digest) == digest else "" for path, digest in files.items()}
    return union


def changed_reads(recorded: Record, root: str) -> dict[str, tuple[str, ...]]:
    """The Python files of the suite in ``root`` that read files which changed since the run, and these."""
    hashes = functools.cache(lambda path: file_hash(Path(root, path)))
    changed = {
        entry: tuple(path for path, digest in files.items() if not digest or hashes(path) != digest)
        for entry, files in recorded.reads.items()
    }
    return {entry: files for entry, files in changed.items() if files}


def reasons(recorded: Record, present: Mapping[str, CaseKey], root: str) -> dict[str, Stale | None]:
    """Why a run's facts are not about each present case, ``None`` if they are; ``root`` is the suite's folder."""
    changed, suite = changed_reads(recorded, root), recorded.suite
    stale: dict[str, Stale | None] = {}
    for case, key in present.items():
        stale[case] = freshness(key, recorded.keys.get(case))
        if not stale[case] and changed:
            variant = suite.variants[case.rpartition("/")[0]]
            files = {f for x in (suite.problems[variant.problem].file, variant.kind.file) for f in changed.get(x, ())}
            stale[case] = FilesChanged(tuple(sorted(files))) if files else None
    return stale


def _other_compilers(present: CaseKey, recorded: CaseKey) -> tuple[tuple[str, str, str], ...]:
    return tuple(
        (part, then, now)
        for part, compiler, _ in _COMPILED
        if (then := getattr(recorded, compiler)) != (now := getattr(present, compiler))
    )


def _measured_by(fact: Fact, arch: str | None) -> Stage | None:
    """The stage that a fact of a GPU of this arch comes from; waves are of the plan, and of the GPU's number of SMs."""
    return "profile" if fact.name == "waves" and fact.subject.arch == arch else MEASURED.get(fact.source)


@dataclass(frozen=True, slots=True)
class Joined:
    """What a recorded run adds: facts, outcomes and samples of fresh cases, the reasons of stale ones, the origin."""

    facts: list[Fact]
    outcomes: list[CaseOutcome]
    samples: dict[str, tuple[float, ...]]
    stale: dict[str, Stale]
    origin: Origin | None
    listings: Lazy[Listing]
    reads: Reads


def join(recorded: Record, present: Mapping[str, CaseKey], measured: set[tuple[str, str]], root: str) -> Joined:
    """Takes over what is fresh. The recorded facts are read only if the run has an outcome to take over.

    Args:
        measured: (case, stage) that the present run measured itself; they are not taken over.
        root: the suite's folder.

    Raises:
        RecordError: the facts cannot be read.
    """
    stale = reasons(recorded, present, root)
    here = {case for case, _ in measured}
    fresh = {case for case, reason in stale.items() if reason is None}
    outcomes = [
        replace(o, origin=o.origin or recorded.id)
        for o in recorded.outcomes
        if o.case in fresh and (o.case, o.stage) not in measured
    ]
    facts = [
        f
        for f in (recorded.facts if outcomes else ())
        if (stage := _measured_by(f, recorded.gpu_arch))
        and (case := f.subject.case) in fresh
        and (case, stage) not in measured
    ]
    samples = {
        k: v
        for k, v in recorded.samples.items()
        if (case := k.rsplit("/", 1)[0]) in fresh and (case, "bench") not in measured
    }
    origin = None
    if facts:
        gpu = recorded.gpu or "unknown GPU"
        cases = len({f.subject.case for f in facts})
        what = f"{len(facts)} facts of {cases} cases"
        if others := {o for c in fresh for o in _other_compilers(present[c], recorded.keys[c])}:
            what += f" (by the text of their sources, which is the same: {cause_text.compilers(sorted(others))})"
        origin = Origin(recorded.id, gpu, recorded.gpu_arch or "", what)
    done = frozenset(case for case, stage in measured if stage == "profile")  # as it is now: the set grows
    listings = Lazy(lambda: (x for x in recorded.listings if x.subject.case in fresh - done))
    changed = changed_reads(recorded, root) if outcomes else recorded.reads
    reads = {entry: files for entry, files in recorded.reads.items() if entry not in changed}
    reported = {case: reason for case, reason in stale.items() if reason and case not in here}
    return Joined(facts, outcomes, samples, reported, origin, listings, reads)
