"""Companions: what is timed beside the chosen variants, since a time alone says little."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from flashcore.measure.machine.environment import of_this_machine
from flashcore.measure.static import facts
from flashcore.model.record import Built, Record
from flashcore.model.suite import Suite, Variant
from flashcore.pipeline.state import Job

#: Of the machine, what a recorded check depends on.
_MACHINE = ("gpu", "driver", "torch", "libraries", "harness")


def of(suite: Suite, variants: Sequence[Variant]) -> list[Variant]:
    """The baseline, the parents of the chosen variants, and the peers, without those that are chosen themselves."""
    names = {suite.baseline, *(v.parent for v in variants)}
    return [v for v in suite.variants.values() if (v.is_reference or v.name in names) and v not in variants]


def known_right(job: Job, built: Built, recorded: Sequence[Record]) -> frozenset[str]:
    """The companions' cases that a recorded run found right on this machine as it is, with the code that they have.

    Args:
        recorded: runs of this GPU, newest first.
    """
    from flashcore.records import freshness

    if not (recorded and job.companions and job.gpu_arch):
        return frozenset()
    here = of_this_machine(Path(job.suite.root), None, job.gpu, job.gpu_arch, None)
    cases = [(v, s) for v, s in job.cases("check") if v.name in job.companions]
    # Of a build whose static facts are not read yet, no artifact has the hash of its code.
    own = [a for a in built.artifacts if a.variant in job.companions and a.arch == job.gpu_arch]
    artifacts = [replace(a, code=a.code or facts.facts(a)[1]) for a in own]
    keys = freshness.case_keys(job.suite, cases, artifacts, built.plans, job.gpu_arch, built.nvcc)
    newest: dict[str, bool] = {}
    for run in recorded:
        same = all(getattr(run.environment, x) == getattr(here, x) for x in _MACHINE)
        for o in run.outcomes:
            if o.stage != "check" or o.origin or o.case not in keys:  # what it joined, another machine may have found
                continue
            key = run.keys.get(o.case)
            fresh = key is not None and bool(key.code) and not freshness.freshness(keys[o.case], key)
            newest.setdefault(o.case, same and fresh and o.status == "ok")
    return frozenset(case for case, right in newest.items() if right)
