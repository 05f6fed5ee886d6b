"""Checks a suite's references on a CPU, and with them its problems: no GPU, no record."""

from __future__ import annotations

import tempfile
import time
from dataclasses import replace
from pathlib import Path

from flashcore.errors import UsageError
from flashcore.machine import toolchain
from flashcore.machine.capabilities import lacking
from flashcore.machine.environment import of_this_machine
from flashcore.model.progress import Say
from flashcore.model.record import Measured, Record, StageNote
from flashcore.model.settings import Settings
from flashcore.pipeline.opening import open_context
from flashcore.records import assemble, store
from flashcore.stages.check import check
from flashcore.stages.runnable_cases import sort_out


def check_references(settings: Settings, say: Say) -> Record:
    """Checks every reference variant, and with it the problem's inputs, answers and emulations. Writes no record.

    Raises:
        CapabilityError: torch is not installed.
        UsageError: no reference is selected.
    """
    if toolchain.torch_root() is None:
        raise lacking("torch")
    settings = replace(settings, check=replace(settings.check, opcheck=False))
    context = open_context(settings)
    context = replace(context, variants=tuple(v for v in context.variants if v.is_reference))
    pairs = context.cases("check")
    if not pairs:
        raise UsageError(
            f"{context.suite.root}: expected a reference to check on a CPU, found none: kernels run only on GPUs\n"
            "  hint: add a Python reference to the suite, such as torch's function"
        )
    began = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="flashcore-check-") as folder:
        context = replace(context, gpu=None, gpu_arch=None, device="cpu", folder=Path(folder), say=say)
        cases, left_out = sort_out(context, "check", [])
        result = check.run(context, cases)
        result = replace(result, outcomes=(*result.outcomes, *left_out))
    note = StageNote("check", "ok", round(time.monotonic() - began, 3), "on a CPU, only references")
    environment = of_this_machine(Path(context.suite.root), None, None, None, None)
    findings = assemble.Findings(
        settings.command, context.suite, pairs, environment, context.built, Measured().plus(result, note)
    )
    return assemble.record_of(store.new_id(), findings, [])
