"""The child of check: runs each case on its seeds and kinds of input, and says what is wrong with it."""

from __future__ import annotations

import math
import sys
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from flashcore.errors import UsageError
from flashcore.stages.check.accuracy import FACT_NAMES, NORMAL, Errors, differing, errors, judge, over_class, soundness
from flashcore.worker.journal import Journal, Task, describe
from flashcore.worker.kernel_call import (
    POISON_BYTE,
    Caller,
    Case,
    Outputs,
    guard_inputs,
    load_problem,
    serve,
    synchronize,
)

if TYPE_CHECKING:
    from torch import Tensor

_OTHER_POISON = 0x5A


class _Answers:
    """References and emulations of one shape, computed once for all its variants."""

    def __init__(self) -> None:
        self._shape: tuple[Any, ...] = ()
        self._kept: dict[tuple[Any, ...], Any] = {}

    def get(self, case: Case, problem: Any, device: str, seed: int, kind: str) -> tuple[Any, Any, Any, Any]:
        """For one seed and kind: inputs, the reference that this tolerance class is held to, the class's
        errors against it, and what its basis costs (``None`` for a class that computes on the inputs)."""
        shape = (case.root, case.problem_file, case.shape)
        if shape != self._shape:
            self._shape, self._kept = shape, {}
        params = dict(case.params)
        key = (seed, kind)
        if key not in self._kept:
            inputs = problem.make_inputs(dict(params), seed, device, kind)
            self._kept[key] = inputs, problem.reference(inputs, params)
        inputs, exact = self._kept[key]
        if (*key, case.tolerance) not in self._kept:
            # A class that quantises its inputs is held to the answer on the quantised ones, so that an error
            # of the kernel cannot hide behind that of the quantisation, which is told apart.
            basis = problem.basis(case.tolerance, inputs, params) if hasattr(problem, "basis") else inputs
            reference = exact if basis is inputs else problem.reference(basis, params)
            cost = None if basis is inputs else {name: errors(reference[name], a) for name, a in exact.items()}
            emulated = problem.emulate(case.tolerance, inputs, params)
            entitled = {
                name: errors(_as_output(case, name, emulated[name]), answer) for name, answer in reference.items()
            }
            self._kept[(*key, case.tolerance)] = reference, entitled, cost
        return (inputs, *self._kept[(*key, case.tolerance)])


def _as_output(case: Case, name: str, emulated: Tensor) -> Tensor:
    """An emulation is held in the type of the output that it stands for."""
    import torch

    dtype = next((a.dtype for a in case.arguments if a.name == name), "")
    return emulated.to(getattr(torch, dtype)) if dtype else emulated


_answers = _Answers()


def perform(task: Task, log: Journal) -> dict[str, Any]:
    """Checks one case; what is wrong with it is data, so that its errors are kept as well."""
    import torch

    payload = task.payload
    case = Case.from_json(payload["case"])
    device = payload["device"]
    problem = load_problem(case.root, case.problem_file)
    # What a problem has at its edges is its own variants' to bear, once; what a library makes of it is its own affair.
    edges = tuple(getattr(problem, "EDGE_KINDS", ()))
    kinds = payload["kinds"] or [*problem.KINDS, *(edges if not case.is_peer else ())]
    unknown = sorted(set(kinds) - {*problem.KINDS, *edges})
    if unknown:
        raise UsageError(f"kinds: expected some of {', '.join((*problem.KINDS, *edges))}, found {', '.join(unknown)}")
    caller = Caller(case, problem, device)
    outputs = caller.outputs()
    complaints: list[str] = []
    worst: dict[str, tuple[float | None, str]] = {}
    for kind in kinds:
        for seed in case.seeds if kind not in edges else case.seeds[:1]:
            where = f"seed {seed}, kind {kind}"
            log.step(task.name, where)
            inputs, reference, entitled, cost = _answers.get(case, problem, device, seed, kind)
            for own in (cost or {}).values():
                _keep_worst(worst, "quantization_max_error", own.max, f"worst on {where}")
                _keep_worst(worst, "quantization_frobenius_error", own.frobenius, f"worst on {where}")
            found: dict[str, tuple[float | None, str]] = {}
            wrong = _compare(caller, outputs, inputs, reference, entitled, found, where)
            # Of values out of the common, only what does not grow with them.
            for fact, (value, note) in found.items():
                if kind not in edges or "over_class" in fact:
                    _keep_worst(worst, fact, value, note)
                if kind == problem.KINDS[0] and f"normal_{fact}" in NORMAL:
                    _keep_worst(worst, f"normal_{fact}", value, note)
            complaints += [f"{text}, on {where}" for text in wrong]
            if any("out-of-bounds write" in text for text in wrong):
                break  # it writes where it should not: no more of that than needed
    if not complaints:
        inputs, *_ = _answers.get(case, problem, device, case.seeds[0], kinds[0])
        log.step(task.name, "repeats")
        complaints += _repeat(caller, inputs, payload["repeats"])
        if hasattr(problem, "invariants") and not case.is_peer:
            log.step(task.name, "invariants")
            complaints += problem.invariants(lambda given: _fresh(caller, given), inputs, dict(case.params))
        if payload["opcheck"]:
            log.step(task.name, "opcheck")
            complaints += _opcheck(caller, inputs)
    if device != "cpu":
        torch.cuda.empty_cache()
    return {"complaints": complaints, "worst": worst}


def _compare(
    caller: Caller,
    outputs: Outputs,
    inputs: Mapping[str, Any],
    reference: Mapping[str, Tensor],
    entitled: Mapping[str, Errors],
    worst: dict[str, tuple[float | None, str]],
    where: str,
) -> list[str]:
    """Calls once and compares; takes the errors into ``worst`` and returns complaints."""
    case = caller.case
    missing = [a.name for a in case.arguments if a.mutable and a.name not in reference]
    if missing:
        raise UsageError(f"{case.problem_file}: expected a reference for every output, found none for {missing}")
    outputs.poison()
    given, bands = (dict(inputs), {}) if case.is_peer else guard_inputs(inputs)
    caller.call(given, outputs)
    synchronize(caller.device)
    complaints = [] if case.is_peer else _changed(inputs, given)
    for name, answer in reference.items():
        if outputs[name].shape != answer.shape:
            return [f"{name}: expected shape {list(answer.shape)}, found {list(outputs[name].shape)}"]
    for name, guard in bands.items():
        if damage := guard.damage():
            complaints.append(f"{name}: out-of-bounds write beside an input: {damage}")
    complaints += soundness(outputs, _unwritten(caller, outputs, given), reference)
    for name, answer in reference.items():
        own = errors(outputs[name], answer)
        ratio_max, ratio_frobenius = over_class(own, entitled[name])
        values = (own.max, own.mean, own.frobenius, ratio_max, ratio_frobenius)
        for fact, value in zip(FACT_NAMES, values, strict=True):
            _keep_worst(worst, fact, value, f"worst on {where}")
        if not complaints:
            complaints += judge(own, entitled[name], case.tolerance, caller.problem.FENCE)
    return complaints


def _unwritten(caller: Caller, outputs: Outputs, inputs: Mapping[str, Any]) -> dict[str, Tensor]:
    """Masks of the elements that a call leaves alone.

    An answer may look like the poison (-1 as an integer, or a NaN of that very make): what still looks like
    poison is unwritten only if, over another poison, it looks like that one.
    """
    masks = {name: guard.unwritten() for name, guard in outputs.guards.items()}
    if any(mask.any() for mask in masks.values()):
        second = _fresh(caller, inputs, _OTHER_POISON)
        masks = {name: mask & second.guards[name].unwritten() for name, mask in masks.items()}
    return masks


def _keep_worst(worst: dict[str, tuple[float | None, str]], name: str, value: float | None, where: str) -> None:
    """Keeps the larger; a value that is not finite is worse than any, and is told as unmeasured."""
    if name in worst and worst[name][0] is None:
        return
    if value is not None and not math.isfinite(value):
        value, where = None, where.replace("worst", f"found {value}")
    before = worst[name][0] if name in worst else None
    if value is None or before is None or value > before:
        worst[name] = (value, where)


def _changed(inputs: Mapping[str, Any], given: Mapping[str, Any]) -> list[str]:
    import torch

    return [
        f"{name}: an input was written to"
        for name, value in inputs.items()
        if isinstance(value, torch.Tensor) and differing(value, given[name]).any()
    ]


def _fresh(caller: Caller, inputs: Mapping[str, Any], fill: int = POISON_BYTE) -> Outputs:
    outputs = caller.outputs(fill)
    caller.call(inputs, outputs)
    synchronize(caller.device)
    return outputs


def _repeat(caller: Caller, inputs: Mapping[str, Any], repeats: int) -> list[str]:
    """Complains unless every call gives the very same bits, whatever lay in the outputs before."""
    first = _fresh(caller, inputs)
    names = [a.name for a in caller.case.arguments if a.mutable]
    # One other poison for all further calls, in one allocation: memory stays the same from call to call.
    again = caller.outputs(_OTHER_POISON)
    for count in range(2, repeats + 1):
        again.poison()
        caller.call(inputs, again)
        synchronize(caller.device)
        for name in names:
            mask = differing(first[name], again[name])
            if mask.any():
                return [
                    f"{name}: call {count} of {repeats} differs from the first in {int(mask.sum())} of "
                    f"{mask.numel()} elements: a race, or an element that is not written"
                ]
    return []


def _opcheck(caller: Caller, inputs: Mapping[str, Any]) -> list[str]:
    """Has torch look whether the operator is what its schema says."""
    import torch

    # NaN is unequal to itself, and several outputs lie in one storage: torch would hold both against us.
    outputs = {name: tensor.clone() for name, tensor in caller.outputs(0).items()}
    target: Any = caller.target
    tests = ["test_schema", "test_autograd_registration", "test_faketensor", "test_aot_dispatch_dynamic"]
    if any(a.dtype.startswith("float8") for a in caller.case.arguments):
        tests.remove("test_schema")  # it multiplies the tensors, which torch cannot do in 8 bits
    try:
        torch.library.opcheck(target, tuple(caller.arguments(inputs, outputs)), test_utils=tests)
    except Exception as error:
        return [f"torch.library.opcheck: {describe(error)}"]
    return []


if __name__ == "__main__":
    sys.exit(serve(sys.argv[1:], perform))
