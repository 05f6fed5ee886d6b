"""Facts from the problems' formulas: ``formula_<key>`` for every key of ``work()``, for each case."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from flashcore.errors import FlashcoreError, UsageError
from flashcore.machine.isolated import Ended, isolated
from flashcore.model.case import Case
from flashcore.model.catalogue import FACTS, fact_of
from flashcore.model.record import CaseSubject, Fact, Source
from flashcore.model.suite import Shape, Suite, Variant
from flashcore.runner.problem_file import load_problem, work_of
from flashcore.stages.context import Context

_TIME_LIMIT = 120.0  # a problem may import torch first


def formula_facts(context: Context) -> list[Fact]:
    """The formula facts of every case that can run.

    Raises:
        UsageError: a problem's ``work()`` fails or returns an unknown key, or a shape has other FLOPs or bytes than the
            one that it is ``same_as``.
    """
    suite = context.suite
    cases = [(v, s) for s in context.shapes for v in context.variants if v.runs_on(s)]
    originals = [(v, suite.shapes.get(s.same_as, s)) for v, s in cases]
    amounts = works(suite, [*cases, *originals])
    facts: list[Fact] = []
    for (variant, shape), work, expected in zip(cases, amounts, amounts[len(cases) :], strict=False):
        if any(work.get(key) != expected.get(key) for key in ("flop", "bytes")):
            raise UsageError(
                f"shape.{shape.name}.same_as: expected flop and bytes of {shape.same_as}, {expected}, found {work}\n"
                "  hint: remove same_as to show two rows"
            )
        for key, value in work.items():
            name = f"formula_{key}"
            if name not in FACTS:
                names = ", ".join(n.removeprefix("formula_") for n in FACTS if n.startswith("formula_"))
                raise UsageError(f"{suite.problems[shape.problem].file}: work() returns {key!r}: expected {names}")
            subject = CaseSubject(Case(variant.name, shape.name))
            facts.append(fact_of(subject, name, float(value), Source.FORMULA))
    return facts


def works(suite: Suite, cases: Iterable[tuple[Variant, Shape]]) -> list[dict[str, float]]:
    """Each case's amounts from its problem's ``work()``, which runs in another process to isolate it from this one.

    Raises:
        UsageError: the file is incomplete, or its ``work()`` fails.
        FlashcoreError: the file cannot be imported.
    """
    cases = list(cases)
    shapes = {(s.name, v.roof): s for v, s in cases}
    file_of = {name: problem.file for name, problem in suite.problems.items()}

    def evaluated() -> list[dict[str, float]] | dict[str, Any]:
        try:
            return [
                work_of(load_problem(suite.root, file_of[shape.problem]), shape.params, roof)
                for (_, roof), shape in shapes.items()
            ]
        except FlashcoreError as error:
            return {"usage": isinstance(error, UsageError), "text": str(error)}

    answer = isolated(_TIME_LIMIT, evaluated)
    if isinstance(answer, Ended):
        code = answer.exit_code
        how = "it timed out" if code is None else f"its process ended with exit code {code}"
        named = ", ".join(dict.fromkeys(file_of[shape.problem] for shape in shapes.values()))
        raise UsageError(f"{named}: expected work() to return amounts, but {how}\n{answer.output}".rstrip())
    if isinstance(answer, dict):
        raise (UsageError if answer["usage"] else FlashcoreError)(answer["text"])
    amounts: dict[tuple[str, str], dict[str, float]] = dict(zip(shapes, answer, strict=True))
    return [amounts[s.name, v.roof] for v, s in cases]
