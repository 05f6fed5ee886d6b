"""What is done to a candidate before any kernel of it runs: sealing, drawing shapes, planning, inspection."""

from __future__ import annotations

import datetime
import hashlib
import os
import time
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from flashcore import __version__
from flashcore.errors import CapabilityError, UsageError
from flashcore.measure.workers.kernel_call import Case
from flashcore.model.groups import picked
from flashcore.model.suite import Shape, Suite
from flashcore.plugins.judge import candidate, draws, inspection, planning
from flashcore.plugins.judge.candidate import Candidate
from flashcore.plugins.judge.planning import Planned
from flashcore.plugins.judge.text import untrusted
from flashcore.plugins.judge.verdict import Verdict
from flashcore.suites import parts


class Prepared(NamedTuple):
    """A candidate that may run, with its shapes and launches."""

    candidate: Candidate
    shapes: Sequence[Shape]
    planned: Planned
    state: Sequence[tuple[str, str]]  # cubin and name of global variables


def begun(suite: Suite, source: Path) -> Verdict:
    """The verdict on a candidate that is not sealed yet."""
    files = (parts.MANIFEST, *suite.manifests, *(p.file for p in suite.problems.values()))
    return Verdict(
        candidate=hashlib.sha256(b"path " + os.fsencode(source.absolute())).hexdigest(),
        suite=suite.name,
        suite_hash=parts.digest({file: Path(suite.root, file).read_bytes() for file in files}),
        untrusted={"name": untrusted(source.name)},
        made_by=f"flashcore {__version__}",
        time=datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
    )


def prepared(verdict: Verdict, suite: Suite, arch: str, source: Path, folder: Path, seconds: float) -> Prepared | None:
    """Prepares the candidate in ``source``; ``None`` if its cubins are refused. ``folder`` is made for its files. To
    read its launches may take so many seconds.

    Raises:
        UsageError: it is wrong.
        CapabilityError: the machine is at fault, or it takes too long.
    """
    folder.mkdir()
    one = candidate.sealed(source, folder / "sealed")
    claims = picked(one.form, "problem", "tolerance", "roof", "deterministic", "shapes")
    verdict.candidate, verdict.untrusted, verdict.claims = one.digest, {"name": untrusted(one.form.name)}, claims
    shapes = draws.shapes(suite, one.form.problem, one.form.shapes, fixed=isinstance(one.form.launches, dict))
    for key in ("tolerance", "roof"):
        allowed = {getattr(v, key) for v in suite.variants.values() if v.problem == one.form.problem}
        if claims[key] not in allowed:
            raise UsageError(f"{key}: expected one of {', '.join(sorted(allowed))}")
    planned = planning.planned(suite, one, shapes, arch)
    launched, until = set[tuple[str, str]](), time.monotonic() + seconds
    for shape in shapes:
        case = case_of(suite, one, shape)
        for given in planned.of(shape.name):
            if time.monotonic() > until:
                raise CapabilityError("its launches took longer than its limit", "give it more with --limit")
            plan = candidate.plan(case, given, {a.name: 1 for a in case.arguments})
            launched.update((launch.cubin, untrusted(launch.kernel)) for launch in plan.launches)
    inspected = {
        name: inspection.inspect(planned.cubins / name, arch) for name in sorted({name for name, _ in launched})
    }
    facts = {(name, k["kernel"]): k for name, each in inspected.items() for k in each.kernels}
    verdict.kernels = [facts[each] for each in facts if each in launched]
    reasons = [reason for each in inspected.values() for reason in each.reasons]
    reasons = reasons or [f"{cubin}: it has no kernel {kernel}" for cubin, kernel in launched - facts.keys()]
    if reasons:
        verdict.end("rejected", *reasons[:20])
        return None
    state = [(cubin, name) for cubin, each in inspected.items() for name in each.state]
    return Prepared(one, shapes, planned, state)


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
