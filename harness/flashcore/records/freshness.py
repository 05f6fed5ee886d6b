"""Takes measured facts over from a recorded run, for the cases whose code is still the same.

A machine without a GPU still reports and gates this way: what was measured stays valid as long as the freshness key of
a case does not change. What is not fresh is *stale* and counts as unmeasured.
"""

from __future__ import annotations

import ast
import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import astuple, dataclass, replace
from pathlib import Path

from flashcore.model import cause_text
from flashcore.model.causes import CodeChanged, NeverMeasured, NoHostHash, ReferenceChanged, SourcesChanged, Stale
from flashcore.model.record import Artifact, CaseKey, CaseOutcome, Fact, Lazy, Listing, Origin, Plan, Record, Source
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
        keys[f"{variant.name}/{shape.name}"] = key
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


def join(recorded: Record, present: Mapping[str, CaseKey], measured: set[tuple[str, str]]) -> Joined:
    """Takes over what is fresh. The recorded facts are read only if the run has an outcome to take over.

    Args:
        measured: (case, stage) that the present run measured itself; they are not taken over.

    Raises:
        RecordError: the facts cannot be read.
    """
    reasons = {case: freshness(key, recorded.keys.get(case)) for case, key in present.items()}
    here = {case for case, _ in measured}
    fresh = {case for case, reason in reasons.items() if reason is None}
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
    stale = {case: reason for case, reason in reasons.items() if reason and case not in here}
    return Joined(facts, outcomes, samples, stale, origin, listings)
