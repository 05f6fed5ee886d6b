"""Takes measured facts over from a recorded run, for the cases whose code is still the same.

A machine without a GPU still reports and gates this way: what was measured stays valid as long as the freshness key of
a case does not change. What is not fresh is *stale* and counts as unmeasured.
"""

from __future__ import annotations

import ast
import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import astuple, dataclass
from pathlib import Path

from flashcore.model import cause_text
from flashcore.model.causes import CodeChanged, NeverMeasured, NoHostHash, ReferenceChanged, SourcesChanged, Stale
from flashcore.model.record import Artifact, CaseKey, CaseOutcome, Fact, Listings, Origin, Plan, Record, Source
from flashcore.model.suite import GPU_STAGES, CompiledCallable, Shape, Suite, Variant

#: The sources of facts that only a GPU can give.
MEASURED = frozenset({Source.NCU, Source.EVENTS, Source.KERNEL, Source.NVML, Source.CHECK, Source.SANITIZER})

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
    built = {a.variant: a for a in artifacts if a.arch == arch and a.status == "ok"}
    hosts = {a.variant: a for a in artifacts if a.host}  # the same for every arch
    planned = {(p.variant, p.shape): p for p in plans}
    problems = {name: module_hash(Path(suite.root) / p.file) for name, p in suite.problems.items()}
    keys: dict[str, CaseKey] = {}
    for variant, shape in cases:
        name = f"{variant.name}/{shape.name}"
        params = sorted(shape.params.items())
        if variant.is_reference:
            own = module_hash(Path(suite.root) / variant.kind.file)
            code = _hash([own, problems[variant.problem], params, variant.tolerance])
            keys[name] = CaseKey(code, "", "", peer=True)
            continue
        artifact = built.get(variant.name)
        if artifact is None:
            continue
        plan = planned.get((variant.name, shape.name))
        if isinstance(
            variant.kind, CompiledCallable
        ):  # a launch's code, grid and arguments: all that the Python code determines
            rest = [artifact.calls.get(shape.name, ""), problems[variant.problem], params, variant.tolerance]
            code = _hash(rest)
            keys[name] = CaseKey(code, _hash([artifact.closure, *rest[1:]]), artifact.cxx, host=code, cxx=artifact.cxx)
            continue
        launches = [] if plan is None else [astuple(x) for x in plan.launches]
        host = hosts.get(variant.name, artifact)
        rest = [launches, problems[variant.problem], params, variant.tolerance]
        keys[name] = CaseKey(
            code=_hash([artifact.code, *rest]),
            closure=_hash([artifact.closure, *rest]),
            nvcc=nvcc,
            host=_hash([host.host, *rest]) if host.host else "",
            cxx=host.cxx,
        )
    return keys


def module_hash(file: Path) -> str:
    """The hash of a Python file, with the modules beside it that it imports, through however many."""
    found: dict[Path, bytes] = {}
    todo = [file]
    while todo:
        path = todo.pop()
        found[path] = path.read_bytes()
        beside = (file.parent / f"{name}{end}" for name in _imported(found[path]) for end in (".py", "/__init__.py"))
        todo += [p for p in beside if p not in found and p.is_file()]
    own = hashlib.sha256(found.pop(file)).hexdigest()
    return _hash([own, *((p.name, hashlib.sha256(t).hexdigest()) for p, t in sorted(found.items()))]) if found else own


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


@dataclass(frozen=True, slots=True)
class Joined:
    """What a recorded run adds: facts, outcomes and samples of fresh cases, the reasons of stale ones, the origin."""

    facts: list[Fact]
    outcomes: list[CaseOutcome]
    samples: dict[str, tuple[float, ...]]
    stale: dict[str, Stale]
    origin: Origin | None
    listings: Listings


def join(recorded: Record, present: Mapping[str, CaseKey], measured: set[tuple[str, str]]) -> Joined:
    """Takes over what is fresh.

    Args:
        measured: (case, stage) that the present run measured itself; they are not taken over.
    """
    stages = {
        Source.CHECK: "check",
        Source.EVENTS: "bench",
        Source.KERNEL: "bench",
        Source.NVML: "bench",
        Source.NCU: "profile",
        Source.SANITIZER: "sanitize",
    }
    stale = {
        case: reason
        for case, key in present.items()
        if (reason := freshness(key, recorded.keys.get(case)))
        and not any((case, stage) in measured for stage in GPU_STAGES)
    }
    fresh = {case for case, key in present.items() if not freshness(key, recorded.keys.get(case))}
    facts = [
        f
        for f in recorded.facts
        if f.source in MEASURED
        and f.subject.case in fresh
        and (f.subject.case, stages.get(f.source, "check")) not in measured
    ]
    outcomes = [
        CaseOutcome(o.variant, o.shape, o.stage, o.status, o.cause, o.seconds, o.origin or recorded.id)
        for o in recorded.outcomes
        if o.case in fresh and (o.case, o.stage) not in measured
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
    listings = Listings(lambda: (x for x in recorded.listings if x.subject.case in fresh - done))
    return Joined(facts, outcomes, samples, stale, origin, listings)
