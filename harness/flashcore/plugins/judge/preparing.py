"""What is done to a candidate before any kernel of it runs: sealing, drawing shapes, planning, inspection."""

from __future__ import annotations

import datetime
import hashlib
import os
import time
from collections.abc import Sequence
from dataclasses import replace
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

    verdict: Verdict
    candidate: Candidate
    shapes: Sequence[Shape]
    planned: Planned
    state: Sequence[tuple[str, str]]  # cubin and name of global variables


def prepared(suite: Suite, arch: str, source: Path, folder: Path, seconds: float) -> Prepared | Verdict:
    """Prepares the candidate in ``source``, or says what is wrong; ``folder`` is made for its files. To read its
    launches may take so many seconds."""
    files = (parts.MANIFEST, *suite.manifests, *(p.file for p in suite.problems.values()))
    verdict = Verdict(
        candidate=hashlib.sha256(b"path " + os.fsencode(source.absolute())).hexdigest(),  # until it is sealed
        suite=suite.name,
        suite_hash=parts.digest({file: Path(suite.root, file).read_bytes() for file in files}),
        untrusted={"name": untrusted(source.name)},
        made_by=f"flashcore {__version__}",
        time=datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
    )
    try:
        folder.mkdir()
        one = candidate.sealed(source, folder / "sealed")
        claims = picked(one.form, "problem", "tolerance", "roof", "deterministic", "shapes")
        verdict = replace(verdict, candidate=one.digest, untrusted={"name": untrusted(one.form.name)}, claims=claims)
        shapes = draws.shapes(suite, one.form.problem, one.form.shapes, fixed=isinstance(one.form.launches, dict))
        for key in ("tolerance", "roof"):
            allowed = {getattr(v, key) for v in suite.variants.values() if v.problem == one.form.problem}
            if claims[key] not in allowed:
                raise UsageError(f"{key}: expected one of {', '.join(sorted(allowed))}")
        planned = planning.planned(suite, one, shapes, arch)
        launched, until = set[tuple[str, str]](), time.monotonic() + seconds
        for shape in shapes:
            case = case_of(suite, one, shape)
            for given in planned.shapes[shape.name]:
                if time.monotonic() > until:
                    raise CapabilityError("its launches took longer than its limit", "give it more with --limit")
                plan = candidate.plan(case, given, {a.name: 1 for a in case.arguments})
                launched.update((launch.cubin, untrusted(launch.kernel)) for launch in plan.launches)
        names = {cubin for cubin, _ in launched}
        inspected = {name: inspection.inspect(planned.cubins / name, arch) for name in sorted(names)}
        reasons = [reason for each in inspected.values() for reason in each.reasons][:20]
        facts = {(name, k["kernel"]): k for name, each in inspected.items() for k in each.kernels}
        reasons += [f"{cubin}: it has no kernel {kernel}" for cubin, kernel in launched - facts.keys() if not reasons]
        verdict = replace(verdict, kernels=tuple(facts[each] for each in facts if each in launched))
        state = [(cubin, name) for cubin, each in inspected.items() for name in each.state]
        return verdict.but("rejected", *reasons) if reasons else Prepared(verdict, one, shapes, planned, state)
    except (UsageError, RecursionError) as error:
        return verdict.but("rejected", error)
    except Exception as error:  # of the machine, or a defect: the next candidate may not pay for it
        return verdict.but("unmeasured", f"{type(error).__name__}: {error}")


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
