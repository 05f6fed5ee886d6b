"""Check: is it still right? Compares every case with fp64, on several seeds and kinds of input: the parent's side.

A variant's errors are compared with those of an emulation of its rounding points on the same inputs, its tolerance
class. The relative Frobenius error may be at most 1.5 times and the largest error at most 2 times the emulation's, plus
1 ulp. The answer may have no overall bias in scale, and all errors must be within the problem's fence. The same applies
to libraries. Outputs are poisoned, with guard bands around them; inputs have bands of NaN around them.

:mod:`flashcore.stages.check.child` does the work.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path

from flashcore.build.cache_key import digest
from flashcore.machine import python_process
from flashcore.machine.toolchain import version_of
from flashcore.model import settings
from flashcore.model.catalogue import fact_of
from flashcore.model.cause import Cause, cause_text, from_json
from flashcore.model.causes import IN_STEP, NOT_COMPARED, UNANSWERED, Hang, OutOfBounds, WrongAnswer
from flashcore.model.files import file_hash, make_folder, write_atomically
from flashcore.model.groups import grouped
from flashcore.model.record import Fact, Source, StageResult, outcome_of
from flashcore.records.freshness import merged
from flashcore.runner.accuracy import FACT_NAMES, NORMAL, QUANTIZATION
from flashcore.runner.journal import Task, TaskResult
from flashcore.runner.kernel_call import KernelCall, Operator
from flashcore.runner.process import Program
from flashcore.stages.context import Context

#: The child's command line.
TARGET = python_process.child("flashcore.stages.check.child")
#: The fewest cases of a shape that stay in one process, since each process must recompute the references. If there are
#: enough cases for all processes, a shape's stay together.
_CHUNK = 16


def prepare(context: Context) -> None:
    """Starts the first processes."""
    if cases := context.cases("check"):
        context.workers.prepare(_program(context), context.folder / "check", most=-(-len(cases) // _CHUNK))


def run(context: Context, cases: Sequence[KernelCall]) -> StageResult:
    """Checks every case in child processes; see :data:`flashcore.stages.gpu_stages.Run`.

    Raises:
        CapabilityError: there is no GPU.
        FlashcoreError: a journal, or the cache of opcheck, cannot be written.
    """
    chosen = context.settings.check
    progress = context.progress("check", len(cases))
    # Group cases by shape: the child caches the references of one shape at a time.
    shapes = list(dict.fromkeys(c.shape for c in cases))
    ordered = sorted(cases, key=lambda c: shapes.index(c.shape))
    groups = _by_schema(ordered) if chosen.opcheck else []
    pending = [group for group in groups if not any(path.exists() for path in _opcheck_files(context, group))]
    opchecked = {group[0].name for group in pending}
    chunk = max(_CHUNK, len(cases) // chosen.children)
    of_shapes = grouped((case.shape, case.name) for case in ordered).values()
    chunks = {name: f"{shape[0]} {i // chunk}" for shape in of_shapes for i, name in enumerate(shape)}

    def task(case: KernelCall, name: str, opcheck: bool) -> Task:
        # If the settings request fewer repeats, as the inner loop does, a shape's larger number does not apply.
        repeats = chosen.repeats if chosen.repeats < settings.Check.repeats else max(chosen.repeats, case.repeats)
        made = case.task(context.device, kinds=chosen.kinds and [*chosen.kinds], repeats=repeats, opcheck=opcheck)
        return replace(made, name=name, group=chunks[case.name])

    def tell(result: TaskResult) -> None:
        progress(f"{result.name}: {cause_text(_wrong(result)).partition('; ')[0] or 'right'}")

    def results_of(tasks: list[Task]) -> list[TaskResult]:
        return context.workers.run(tasks, _program(context), context.folder / "check", tell)

    results = {r.name: r for r in results_of([task(c, c.name, c.name in opchecked) for c in ordered])}
    # If the checked operator of a schema is wrong, opcheck the schema's others.
    wrong = {name for name, result in results.items() if _wrong(result)}
    others = [c for first, *rest in pending if first.name in wrong for c in rest if c.name not in wrong]
    if others:
        again = results_of([task(c, f"{c.name}~opcheck", True) for c in others])
        results |= {c.name: r for c, r in zip(others, again, strict=True)}
        opchecked |= {c.name for c in others}
    for path in _opcheck_files(context, [c for c in ordered if c.name in opchecked and not _wrong(results[c.name])]):
        make_folder(path.parent)
        write_atomically(path, b"")
    return StageResult(
        tuple(fact for case in cases for fact in _facts(case, results[case.name])),
        tuple(outcome_of(case.case, "check", _wrong(results[case.name]), results[case.name].seconds) for case in cases),
        reads=merged(r.data.get("reads", {}) for r in results.values() if r.data),
    )


def _program(context: Context) -> Program:
    chosen = context.settings.check
    limits = context.limits(chosen.limits)
    return Program(command=context.resident or TARGET, limits=limits, children=chosen.children)


def _by_schema(cases: Sequence[KernelCall]) -> list[list[KernelCall]]:
    """The first case of each variant that has an operator, grouped by schema. ``torch.library.opcheck`` gives the same
    result for operators generated from one schema. An operator that a problem file registers is a group by itself."""
    groups: dict[object, dict[str, KernelCall]] = {}
    for case in cases:
        if isinstance(case.target, Operator):
            schema = (case.problem_file, case.arguments) if case.target.host else case.variant
            groups.setdefault(schema, {}).setdefault(case.variant, case)
    return [list(group.values()) for group in groups.values()]


def _opcheck_files(context: Context, cases: Sequence[KernelCall]) -> list[Path]:
    """The files that record a passed opcheck of these cases' operators. The name is a hash of all that the result
    depends on: the operator, its inputs, and the checker's versions."""
    folder = context.build_folder / context.suite.name / ".opcheck"
    child = file_hash(Path(__file__).with_name("child.py"))
    checker = (version_of("torch"), version_of("flashcore"), context.device, child)
    keys = [
        (c.target.host, file_hash(Path(c.root) / c.problem_file), sorted(c.params.items()), checker)
        for c in cases
        if isinstance(c.target, Operator) and c.target.host
    ]
    return [folder / digest(key)[:32] for key in keys]


def _wrong(result: TaskResult) -> Cause | None:
    """Why the case failed; ``None`` if it is right."""
    if result.status != "ok" or result.data is None:
        cause = result.cause or UNANSWERED()
        return (
            cause if isinstance(cause, Hang) or not result.step.what else IN_STEP(str(result.step), cause)
        )  # it has the step
    complaints, elements = tuple(result.data["complaints"]), result.data.get("elements")
    kind = OutOfBounds if result.data["out_of_bounds"] else WrongAnswer
    return kind(complaints, from_json(elements) if elements else None) if complaints else None


def _facts(case: KernelCall, result: TaskResult) -> Iterator[Fact]:
    """The case's errors, each the worst over seeds and kinds; unmeasured if not finite."""
    worst = (result.data or {}).get("worst", {})
    for name in (*FACT_NAMES, *NORMAL, *(n for n in QUANTIZATION if n in worst)):
        value, where = worst.get(name, (None, None))
        detail = from_json(where) if where else NOT_COMPARED(result.cause)
        yield fact_of(case.subject, name, value, Source.CHECK, detail)
