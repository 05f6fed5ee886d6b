"""Shows that timed calls do their work, by the answer of a mode's last call.

Timed calls use the same tensors again and again, so the times of a kernel that keeps its result, or of a launcher that
stops after some calls, would look usual. After the other calls of each mode, other inputs are written and all outputs
poisoned, untimed. Then the mode's last sample is taken, and what its last call wrote is compared with the reference, in
check's tolerance classes. Calls before it are not looked at: work that is saved on purpose is what the extension judge
finds.
"""

from __future__ import annotations

from flashcore.model.cause import Reason
from flashcore.model.causes import WRONG_TIMED_ANSWER
from flashcore.runner.kernel_call import Caller
from flashcore.stages.bench.sets import Sets
from flashcore.stages.bench.timing import Timed


def last_sample(mode: str, caller: Caller, sets: Sets, timed: Timed) -> tuple[float, Reason | None]:
    """A sample of the mode into poisoned outputs, us per call, and what is wrong with its last call's answer."""
    i = (timed.calls_in(mode) - 1) % len(timed.outputs)
    is_reference = caller.case.is_reference

    def poison() -> None:
        for outputs in timed.outputs:
            outputs.poison()
        if is_reference and mode != "eager":  # whose graph writes to memory of its own
            for answer in caller.named(timed.answer(mode)).values():
                answer.fill_(float("nan") if answer.is_floating_point() else -1)

    timed.before = poison
    try:
        us: float = getattr(timed, mode)()
    finally:
        timed.before = None
    if is_reference:
        timed.outputs[i].update(caller.named(timed.answer(mode)))
    seed, wrong = sets.complaints(caller.case, i % len(sets.inputs), timed.outputs[i])
    return us, WRONG_TIMED_ANSWER(wrong[0], mode, seed) if wrong else None
