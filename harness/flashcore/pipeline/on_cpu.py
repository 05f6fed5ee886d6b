"""A problem's file and the peers of its suite, tried on a CPU: mistakes in them can be found without a GPU."""

from __future__ import annotations

import dataclasses
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from flashcore.errors import UsageError
from flashcore.measure.machine.capabilities import lacking
from flashcore.measure.machine.environment import of_this_machine
from flashcore.measure.machine.toolchain import torch_root
from flashcore.model.record import Built, Measured, Record, StageNote
from flashcore.pipeline.gpu_stages import child_cases
from flashcore.pipeline.run import start
from flashcore.pipeline.state import Settings
from flashcore.records import assemble, store


def check_peers(settings: Settings, say: Callable[[str], None]) -> Record:
    """Checks every peer, and with it the problem's inputs, reference and emulations. Nothing is recorded on disk.

    Raises:
        CapabilityError: no torch.
        UsageError: the suite has no peer among what the user chose.
    """
    from flashcore.measure import settings as stages
    from flashcore.measure.check import check

    if torch_root() is None:
        raise lacking("torch")
    job = dataclasses.replace(start(settings), gpu=None, gpu_arch=None)
    pairs = [(variant, shape) for variant, shape in job.cases("check") if variant.is_reference]
    if not pairs:
        raise UsageError(
            f"{job.suite.root}: expected a peer to check on a CPU, found none: kernels run only on GPUs\n"
            "  hint: give the problem a peer in Python, such as torch's own function"
        )
    chosen = stages.Check(
        device="cpu", opcheck=False, progress=say, time_limit=settings.time_limit, repeats=settings.repeats
    )
    nothing = Built("", (), ())
    began = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="flashcore-check-") as folder:
        result = check.run(child_cases(job, nothing, pairs), Path(folder), chosen)
    note = StageNote("check", "ok", round(time.monotonic() - began, 3), "on a CPU, only peers")
    environment = of_this_machine(Path(job.suite.root), None, None, None, None)
    found = assemble.Findings(
        settings.command, job.suite, pairs, environment, (), nothing, Measured().plus(result, note)
    )
    return assemble.record_of(store.new_id(), found, [])
