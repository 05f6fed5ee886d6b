"""Is it still right? Every case against fp64, on several seeds and kinds of input.

A variant is compared with an emulation of its own rounding points on the same inputs (its tolerance class). Its
relative Frobenius error may be at most 1.5 times and its largest error at most 2 times the emulation's, plus one unit
in the last place. The answer as a whole may be neither too large nor too small, and never beyond the problem's fence.
The same holds for peers. Outputs are poisoned and lie between guard bands, inputs lie between bands of NaN.

This is the parent's side; :mod:`flashcore.measure.check.child` does the work.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Sequence
from pathlib import Path

from flashcore.measure import settings
from flashcore.measure.machine import python_process
from flashcore.measure.machine.toolchain import version_of
from flashcore.measure.workers import supervisor
from flashcore.measure.workers.accuracy import FACT_NAMES, NORMAL, QUANTIZATION
from flashcore.measure.workers.kernel_call import Case
from flashcore.model.catalogue import FACTS
from flashcore.model.files import write_atomically, writing
from flashcore.model.record import CaseOutcome, Fact, Source, StageResult
from flashcore.records.freshness import module_hash

#: The command line of the child.
TARGET = python_process.child("flashcore.measure.check.child")


def run(cases: Sequence[Case], folder: Path, chosen: settings.Check) -> StageResult:
    """Checks every case in child processes; resumable in ``folder``.

    Raises:
        CapabilityError: there is no GPU.
        FlashcoreError: a journal, or what is remembered, cannot be written.
    """
    # Cases of a shape side by side: the child keeps the answers of one shape at a time.
    shapes = list(dict.fromkeys(c.shape for c in cases))
    ordered = sorted(cases, key=lambda c: shapes.index(c.shape))
    alike = _alike(ordered) if chosen.opcheck else []
    to_ask = [group for group in alike if not any(path.exists() for path in _memories(group, chosen))]
    asked = {group[0].name for group in to_ask}

    def task(case: Case, name: str, opcheck: bool) -> supervisor.Task:
        payload = {
            "case": case.to_json(),
            "device": chosen.device,
            "kinds": None if chosen.kinds is None else list(chosen.kinds),
            # The inner loop asks for fewer on purpose: then a shape's own, larger number does not apply.
            "repeats": chosen.repeats if chosen.repeats < settings.Check.repeats else max(chosen.repeats, case.repeats),
            "opcheck": opcheck,
        }
        return supervisor.Task(name, payload)

    def tell(result: supervisor.Result) -> None:
        complaints = _complaints(result)
        chosen.progress(f"{result.name}: " + (complaints[0] if complaints else "right"))

    tasks = [task(c, c.name, c.name in asked) for c in ordered]
    by_name = {r.name: r for r in supervisor.supervise(tasks, folder, TARGET, chosen, on_result=tell)}
    # Where the one that was asked is wrong, the others of its schema are.
    others = [
        c for own in to_ask if _complaints(by_name[own[0].name]) for c in own[1:] if not _complaints(by_name[c.name])
    ]
    if others:
        again = [task(c, f"{c.name}~opcheck", True) for c in others]
        results = supervisor.supervise(again, folder, TARGET, chosen, on_result=tell)
        by_name |= {c.name: r for c, r in zip(others, results, strict=True)}
        asked |= {c.name for c in others}
    _remember([c for c in ordered if c.name in asked and not _complaints(by_name[c.name])], chosen)
    facts: list[Fact] = []
    outcomes = []
    for case in cases:
        result = by_name[case.name]
        complaints = _complaints(result)
        outcomes.append(
            CaseOutcome(
                case.variant,
                case.shape,
                "check",
                "skipped" if result.status == "skipped" else "failed" if complaints else "ok",
                "; ".join(complaints[:3]) + (f"; and {len(complaints) - 3} more" if len(complaints) > 3 else ""),
                result.seconds,
            )
        )
        facts.extend(_facts(case, result))
    return StageResult(tuple(facts), tuple(outcomes))


def _alike(cases: Sequence[Case]) -> list[list[Case]]:
    """The first case of each variant that has an operator, by schema: a library's operator is generated from it, so
    that ``torch.library.opcheck`` says the same of all. One that a problem file registers is alone."""
    groups: dict[object, dict[str, Case]] = {}
    for case in cases:
        if not case.callable:
            schema = (case.problem_file, case.arguments) if case.operator else case.variant
            groups.setdefault(schema, {}).setdefault(case.variant, case)
    return [list(group.values()) for group in groups.values()]


def _memories(cases: Sequence[Case], chosen: settings.Check) -> list[Path]:
    """Where it is remembered that opcheck found the operators of these cases right: files named by what that depends
    on, the operator as it is registered, what it is called with, and who asks."""
    if chosen.opchecked is None:
        return []
    own = module_hash(Path(__file__).with_name("child.py"))
    who = (version_of("torch"), version_of("flashcore"), chosen.device, own)
    keys = [
        (c.operator, module_hash(Path(c.root) / c.problem_file), sorted(c.params.items()), who)
        for c in cases
        if c.operator
    ]
    return [chosen.opchecked / hashlib.sha256(json.dumps(key).encode()).hexdigest()[:32] for key in keys]


def _remember(cases: Sequence[Case], chosen: settings.Check) -> None:
    for path in _memories(cases, chosen):
        with writing(path.parent):
            path.parent.mkdir(parents=True, exist_ok=True)
            write_atomically(path, b"")


def _complaints(result: supervisor.Result) -> list[str]:
    if result.status != "ok" or result.data is None:
        return [result.reason + (f" (in: {result.step})" if result.step else "")]
    return list(result.data["complaints"])


def _facts(case: Case, result: supervisor.Result) -> Iterator[Fact]:
    """What was measured; each worst over seeds and kinds, and unmeasured where nothing finite was."""
    worst = (result.data or {}).get("worst", {})
    for name in (*FACT_NAMES, *NORMAL, *(n for n in QUANTIZATION if n in worst)):
        value, where = worst.get(name, (None, "not compared: " + (result.reason or "no answer to compare")))
        yield Fact(case.subject, name, value, FACTS[name].unit, Source.CHECK, where)
