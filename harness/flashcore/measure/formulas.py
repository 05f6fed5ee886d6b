"""The problems' own counts, for each case: ``formula_<key>`` for every key of ``work``."""

from __future__ import annotations

from flashcore.errors import UsageError
from flashcore.measure.context import Context
from flashcore.measure.workers.problem_file import load_problem, work_of
from flashcore.model.catalogue import FACTS
from flashcore.model.record import Fact, Source, Subject


def formula_facts(context: Context) -> list[Fact]:
    """The facts of every case that can run.

    Raises:
        UsageError: a problem gives an amount of another name, or none.
    """
    suite = context.suite
    modules = {name: load_problem(suite.root, problem.file) for name, problem in suite.problems.items()}
    facts: list[Fact] = []
    for shape, variant in ((s, v) for s in context.shapes for v in context.variants if v.runs_on(s)):
        for key, value in work_of(modules[shape.problem], shape.params, variant.roof).items():
            name = f"formula_{key}"
            if name not in FACTS:
                names = ", ".join(n.removeprefix("formula_") for n in FACTS if n.startswith("formula_"))
                raise UsageError(f"{suite.problems[shape.problem].file}: work() gives {key!r}: expected {names}")
            subject = Subject(variant.name, shape=shape.name)
            facts.append(Fact(subject, name, float(value), FACTS[name].unit, Source.FORMULA))
    return facts
