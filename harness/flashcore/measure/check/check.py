"""Is it still right? Every case against fp64, on several seeds and kinds of input.

A variant is compared with an emulation of its own rounding points on the same inputs (its tolerance class). Its
relative Frobenius error may be at most 1.5 times and its largest error at most 2 times the emulation's, plus one unit
in the last place. The answer as a whole may be neither too large nor too small, and never beyond the problem's fence.
The same holds for peers. Outputs are poisoned and lie between guard bands, inputs lie between bands of NaN.

This is the parent's side; :mod:`flashcore.measure.check.child` does the work.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

from flashcore.measure import settings
from flashcore.measure.build.dependencies import digest
from flashcore.measure.context import Context
from flashcore.measure.machine import python_process
from flashcore.measure.machine.toolchain import version_of
from flashcore.measure.workers.accuracy import FACT_NAMES, NORMAL, QUANTIZATION
from flashcore.measure.workers.journal import Result, Task
from flashcore.measure.workers.kernel_call import Case
from flashcore.measure.workers.program import Program
from flashcore.model.catalogue import FACTS
from flashcore.model.cause_text import text
from flashcore.model.causes import Cause, InStep, NotCompared, OutOfBounds, Unanswered, WrongAnswer, from_json
from flashcore.model.files import write_atomically, writing
from flashcore.model.record import CaseOutcome, CaseStatus, Fact, Source, StageResult
from flashcore.records.freshness import merged, module_hash

#: The command line of the child.
TARGET = python_process.child("flashcore.measure.check.child")
#: Cases of a shape that stay together: each process that has some computes the references anew, in less time than one
#: case takes.
_CHUNK = 16


def prepare(context: Context) -> None:
    """Starts the first processes; see :class:`flashcore.measure.stage.Stage`."""
    if cases := context.cases("check"):
        context.workers.prepare(_program(context), context.folder / "check", most=-(-len(cases) // _CHUNK))


def run(context: Context, cases: Sequence[Case]) -> StageResult:
    """Checks every case in child processes; see :class:`flashcore.measure.stage.Stage`.

    Raises:
        CapabilityError: there is no GPU.
        FlashcoreError: a journal, or the memory of opcheck, cannot be written.
    """
    chosen = context.settings.check
    progress = context.progress("check", len(cases))
    # Cases of a shape side by side: the child keeps the answers of one shape at a time.
    shapes = list(dict.fromkeys(c.shape for c in cases))
    ordered = sorted(cases, key=lambda c: shapes.index(c.shape))
    groups = _alike(ordered) if chosen.opcheck else []
    pending = [group for group in groups if not any(path.exists() for path in _memories(context, group))]
    opchecked = {group[0].name for group in pending}

    def task(case: Case, name: str, opcheck: bool) -> Task:
        payload = {
            "case": case.to_json(),
            "device": context.device,
            "kinds": None if chosen.kinds is None else list(chosen.kinds),
            # The inner loop asks for fewer on purpose: then a shape's own, larger number does not apply.
            "repeats": chosen.repeats if chosen.repeats < settings.Check.repeats else max(chosen.repeats, case.repeats),
            "opcheck": opcheck,
        }
        return Task(name, payload)

    def tell(result: Result) -> None:
        progress(f"{result.name}: {text(_wrong(result)).partition('; ')[0] or 'right'}")

    def results_of(tasks: list[Task]) -> list[Result]:
        return context.workers.run(tasks, _program(context), context.folder / "check", tell)

    results = {r.name: r for r in results_of([task(c, c.name, c.name in opchecked) for c in ordered])}
    # Where the one that was asked is wrong, the others of its schema are.
    wrong = {name for name, result in results.items() if _wrong(result)}
    others = [c for first, *rest in pending if first.name in wrong for c in rest if c.name not in wrong]
    if others:
        again = results_of([task(c, f"{c.name}~opcheck", True) for c in others])
        results |= {c.name: r for c, r in zip(others, again, strict=True)}
        opchecked |= {c.name for c in others}
    _remember(context, [c for c in ordered if c.name in opchecked and not _wrong(results[c.name])])
    return StageResult(
        tuple(fact for case in cases for fact in _facts(case, results[case.name])),
        tuple(_outcome(case, results[case.name]) for case in cases),
        reads=merged(r.data.get("reads", {}) for r in results.values() if r.data),
    )


def _program(context: Context) -> Program:
    chosen = context.settings.check
    command = context.resident or TARGET
    return Program(command=command, limits=chosen.limits, lanes=chosen.lanes, chunk=_CHUNK, refill=True)


def _outcome(case: Case, result: Result) -> CaseOutcome:
    wrong = _wrong(result)
    status: CaseStatus = "skipped" if result.status == "skipped" else "failed" if wrong else "ok"
    return CaseOutcome(case.variant, case.shape, "check", status, wrong, result.seconds)


def _alike(cases: Sequence[Case]) -> list[list[Case]]:
    """The first case of each variant that has an operator, by schema: a library's operator is generated from it, so
    that ``torch.library.opcheck`` says the same of all. One that a problem file registers is alone."""
    groups: dict[object, dict[str, Case]] = {}
    for case in cases:
        if not case.callable:
            schema = (case.problem_file, case.arguments) if case.operator else case.variant
            groups.setdefault(schema, {}).setdefault(case.variant, case)
    return [list(group.values()) for group in groups.values()]


def _memories(context: Context, cases: Sequence[Case]) -> list[Path]:
    """Where it is remembered that opcheck found the operators of these cases right: files named by what that depends
    on, the operator as it is registered, what it is called with, and who asks."""
    folder = context.build_folder / context.suite.name / ".opcheck"
    child = module_hash(Path(__file__).with_name("child.py"))
    who = (version_of("torch"), version_of("flashcore"), context.device, child)
    keys = [
        (c.operator, module_hash(Path(c.root) / c.problem_file), sorted(c.params.items()), who)
        for c in cases
        if c.operator
    ]
    return [folder / digest(key)[:32] for key in keys]


def _remember(context: Context, cases: Sequence[Case]) -> None:
    for path in _memories(context, cases):
        with writing(path.parent):
            path.parent.mkdir(parents=True, exist_ok=True)
            write_atomically(path, b"")


def _wrong(result: Result) -> Cause | None:
    """What is wrong with a case; ``None`` if nothing is."""
    if result.status != "ok" or result.data is None:
        cause = result.cause or Unanswered()
        return InStep(str(result.step), cause) if result.step.what else cause
    complaints = tuple(result.data["complaints"])
    kind = OutOfBounds if result.data["out_of_bounds"] else WrongAnswer
    return kind(complaints) if complaints else None


def _facts(case: Case, result: Result) -> Iterator[Fact]:
    """What was measured; each worst over seeds and kinds, and unmeasured where nothing finite was."""
    worst = (result.data or {}).get("worst", {})
    for name in (*FACT_NAMES, *NORMAL, *(n for n in QUANTIZATION if n in worst)):
        value, where = worst.get(name, (None, None))
        detail = from_json(where) if where else NotCompared(result.cause)
        yield Fact(case.subject, name, value, FACTS[name].unit, Source.CHECK, detail)
