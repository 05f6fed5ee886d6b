"""What is done to a candidate before any kernel of it runs: sealing, drawing shapes, planning, inspection."""

from __future__ import annotations

import datetime
import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from flashcore import __version__
from flashcore.errors import UsageError
from flashcore.measure.workers.kernel_call import Case
from flashcore.model.groups import picked
from flashcore.model.suite import Shape, Suite
from flashcore.plugins.judge import candidate, draws, inspection, planning
from flashcore.plugins.judge.candidate import Candidate
from flashcore.plugins.judge.text import untrusted
from flashcore.plugins.judge.verdict import Verdict


@dataclass(frozen=True, slots=True)
class Prepared:
    """A candidate that may run, with its drawn shapes and their launches; or its verdict, which then has reasons."""

    verdict: Verdict
    candidate: Candidate | None = None
    shapes: Sequence[tuple[Shape, bool]] = ()
    launches: Mapping[str, planning.Launches] = field(default_factory=dict)
    state: Sequence[tuple[str, str]] = ()  # cubin and name of global variables


def prepared(suite: Suite, arch: str, source: Path, folder: Path) -> Prepared:
    """Prepares the candidate in ``source``; ``folder`` is made for its files."""
    files = [Path(suite.root, "suite.toml"), *(Path(suite.root, p.file) for p in suite.problems.values())]
    verdict = Verdict(
        candidate=hashlib.sha256(str(source).encode()).hexdigest(),
        suite=suite.name,
        suite_hash=hashlib.sha256(b"".join(file.read_bytes() for file in files if file.is_file())).hexdigest(),
        untrusted={"name": untrusted(source.name)},
        made_by=f"flashcore {__version__}",
        time=datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
    )
    try:
        folder.mkdir()
        one = candidate.sealed(source, folder / "sealed")
        claims = picked(one.form, "problem", "tolerance", "roof", "deterministic", "shapes")
        texts = {"name": untrusted(one.form.name)}
        verdict = replace(verdict, candidate=one.digest, untrusted=texts, claims=claims)
        variants = [v for v in suite.variants.values() if v.problem == one.form.problem]
        for key, allowed in (("tolerance", {v.tolerance for v in variants}), ("roof", {v.roof for v in variants})):
            if getattr(one.form, key) not in allowed:
                raise UsageError(f"{key}: expected one of {', '.join(sorted(allowed)) or 'no problem of the suite'}")
        shapes = draws.shapes(suite, one.form.problem, one.form.shapes)
        launches = planning.launches(suite, one, shapes, arch)
        for shape, _ in shapes:
            case, given = case_of(suite, one, shape), launches[shape.name]
            candidate.plan(case, given.launches, given.workspaces, {a.name: 1 for a in case.arguments})
        paths = sorted({each.folder / launch["cubin"] for each in launches.values() for launch in each.launches})
        inspected = [inspection.inspect(path, arch) for path in paths]
        reasons = tuple(reason for each in inspected for reason in each.reasons)
        kernels = tuple(kernel for each in inspected for kernel in each.kernels)
        state = [(path.name, name) for path, each in zip(paths, inspected, strict=True) for name in each.state]
        verdict = replace(verdict, status="rejected" if reasons else "unmeasured", reasons=reasons, kernels=kernels)
        return Prepared(verdict, one, shapes, launches, state)
    except UsageError as error:
        return Prepared(replace(verdict, status="rejected", reasons=(untrusted(error, 1000),)))
    except Exception as error:  # of the machine, or a defect: the next candidate may not pay for it
        return Prepared(replace(verdict, reasons=(untrusted(f"{type(error).__name__}: {error}", 1000),)))


def case_of(suite: Suite, one: Candidate, shape: Shape) -> Case:
    """The candidate on a shape."""
    problem = suite.problems[one.form.problem]
    return Case(
        variant="candidate",
        shape=shape.name,
        suite=suite.name,
        root=str(Path(suite.root).resolve()),
        problem_file=problem.file,
        params=dict(shape.params),
        arguments=problem.arguments,
        library=None,
        callable=None,
        tolerance=one.form.tolerance,
        seeds=(),
        flop=None,
    )
