"""Is it still right? Every case against fp64, on several seeds and kinds of input.

A variant is compared with an emulation of its own rounding points on the same inputs (its tolerance class). Its
relative Frobenius error may be at most 1.5 times and its largest error at most 2 times the emulation's, plus one unit
in the last place. The answer as a whole may be neither too large nor too small, and never beyond the problem's fence.
The same holds for peers. Outputs are poisoned and lie between guard bands, inputs lie between bands of NaN.

This is the parent's side; :mod:`flashcore.stages.check.child` does the work.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Sequence
from pathlib import Path

from flashcore.machine import python_process
from flashcore.machine.toolchain import version_of
from flashcore.model.catalogue import FACTS
from flashcore.model.files import write_atomically, writing
from flashcore.model.record import CaseOutcome, Fact, Source, StageResult
from flashcore.stages import settings
from flashcore.worker import supervisor
from flashcore.worker.accuracy import FACT_NAMES, NORMAL, QUANTIZATION
from flashcore.worker.kernel_call import Case

#: The command line of the child.
TARGET = python_process.child("flashcore.stages.check.child")


def run(cases: Sequence[Case], folder: Path, chosen: settings.Check) -> StageResult:
    """Checks every case in child processes; resumable in ``folder``.

    Raises:
        CapabilityError: there is no GPU.
        FlashcoreError: a journal, or what is remembered, cannot be written.
    """
    # Cases of a shape side by side: the child keeps the answers of one shape at a time.
    shapes = list(dict.fromkeys(c.shape for c in cases))
    first: dict[object, str] = {}
    tasks = []
    memory: dict[str, Path] = {}
    for case in sorted(cases, key=lambda c: shapes.index(c.shape)):
        # A library's operator is generated from its schema, so one variant of each is asked.
        schema = (case.problem_file, case.arguments) if case.operator else case.variant
        opcheck = chosen.opcheck and not case.callable and first.setdefault(schema, case.name) == case.name
        if opcheck and chosen.opchecked and case.operator:
            memory[case.name] = chosen.opchecked / _identity(case, chosen.device)
        payload = {
            "case": case.to_json(),
            "device": chosen.device,
            "kinds": None if chosen.kinds is None else list(chosen.kinds),
            # The inner loop asks for fewer on purpose: then a shape's own, larger number does not apply.
            "repeats": chosen.repeats if chosen.repeats < settings.Check.repeats else max(chosen.repeats, case.repeats),
            "opcheck": opcheck and not (case.name in memory and memory[case.name].exists()),
        }
        tasks.append(supervisor.Task(case.name, payload))

    def tell(result: supervisor.Result) -> None:
        complaints = _complaints(result)
        chosen.progress(f"{result.name}: " + (complaints[0] if complaints else "right"))

    results = supervisor.supervise(tasks, folder, TARGET, chosen, on_result=tell)
    by_name = {r.name: r for r in results}
    for name, path in memory.items():
        if by_name[name].status == "ok" and not _complaints(by_name[name]) and not path.exists():
            with writing(path.parent):
                path.parent.mkdir(parents=True, exist_ok=True)
                write_atomically(path, name.encode())
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


def _identity(case: Case, device: str) -> str:
    """What ``torch.library.opcheck`` depends on: the operator as it is registered, and who asks."""
    parts = (case.operator, version_of("torch"), version_of("flashcore"), device)
    return hashlib.sha256(json.dumps(parts).encode()).hexdigest()[:32]


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
