"""Finds references that a recorded run already checked on this machine, so that they are not checked again."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from flashcore.machine.environment import of_this_machine
from flashcore.model.case import Case
from flashcore.model.record import Record
from flashcore.records import freshness
from flashcore.stages.context import Context

#: The environment's fields that a recorded check depends on.
_MACHINE = ("gpu", "driver", "torch", "libraries", "harness")


def already_checked(context: Context, recorded: Iterable[Record]) -> frozenset[Case]:
    """The references' cases that passed check in a recorded run on an identical machine, with their present code.

    Args:
        recorded: runs on this GPU model, newest first.
    """
    if not (context.references and context.gpu_arch):
        return frozenset()
    here = of_this_machine(Path(context.suite.root), None, context.gpu, context.gpu_arch, None)
    cases = [(v, s) for v, s in context.cases("check") if v.name in context.references]
    built, arch = context.built, context.gpu_arch
    artifacts = [a for a in built.artifacts if a.variant in context.references and a.arch == arch]
    keys = freshness.case_keys(context.suite, cases, artifacts, built.plans, arch, built.nvcc)
    newest: dict[Case, bool] = {}
    for run in recorded:
        if newest.keys() >= keys.keys():
            break
        stale = freshness.reasons(run, keys, context.suite)
        same = all(getattr(run.environment, x) == getattr(here, x) for x in _MACHINE)
        for o in run.outcomes:
            if o.stage != "check" or o.origin or o.case not in keys:  # joined outcomes may be another machine's
                continue
            key = run.keys.get(o.case)
            fresh = key is not None and bool(key.code) and not stale[o.case]
            newest.setdefault(o.case, same and fresh and o.status == "ok")
    return frozenset(case for case, right in newest.items() if right)
