"""The child process of check: runs each case on its seeds and kinds of input, and returns complaints and errors."""

from __future__ import annotations

import functools
import math
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from flashcore.errors import UsageError
from flashcore.model.cause import Detail, as_json
from flashcore.model.causes import NOT_FINITE, WorstInput, WrongElements
from flashcore.runner.accuracy import (
    FACT_NAMES,
    NORMAL,
    differing,
    examined,
    over_class,
    soundness,
    unsound,
)
from flashcore.runner.guarded import LAYOUTS, POISON_BYTE, Outputs, any_of, guard_inputs, laid_out
from flashcore.runner.journal import Journal, Task, describe
from flashcore.runner.kernel_call import Caller, KernelCall, is_poisoned, serve, synchronize
from flashcore.runner.opened_files import reads, watch
from flashcore.runner.problem_file import all_kinds, load_problem
from flashcore.runner.references import Expected, References
from flashcore.runner.wrong_elements import locate

if TYPE_CHECKING:
    from torch import Tensor

_OTHER_POISON = 0x5A
#: Repeated calls that are compared on the device per host read.
_CALLS_PER_READ = 100
#: The modules that the first opcheck imports, which takes most of its time.
IMPORTS = ("torch.testing._internal.optests", "torch._dynamo", "torch._functorch.aot_autograd")
references = References()


def perform(task: Task, log: Journal) -> dict[str, Any]:
    """Checks one case. Complaints are returned as data, so that the errors are recorded as well."""
    import torch

    payload = task.payload
    case = KernelCall.from_json(payload["case"])
    device = payload["device"]
    watch()
    problem = load_problem(case.root, case.problem_file)
    # Edge inputs are checked on one seed, and only for the suite's variants: libraries need not handle them.
    every = all_kinds(problem)
    kinds = payload["kinds"] or (problem.KINDS if case.is_reference else every)
    if unknown := sorted(set(kinds) - {*every}):
        raise UsageError(f"kinds: expected some of {', '.join(every)}, found {', '.join(unknown)}")
    caller, result = Caller(case, problem, device), _Result()
    outputs = caller.outputs()
    for kind, seed in ((k, s) for k in kinds for s in (case.seeds if k in problem.KINDS else case.seeds[:1])):
        log.step(task.name, f"seed {seed}, kind {kind}")
        result.add(caller, outputs, references.get(case, problem, device, seed, kind), WorstInput(seed, kind))
        if result.outside:
            break  # do not call a kernel again that writes out of bounds
    complaints = result.complaints
    if not complaints:
        expected = references.get(case, problem, device, case.seeds[0], kinds[0])
        inputs = expected.inputs
        log.step(task.name, "repeats")
        complaints += _repeat(caller, inputs, payload["repeats"])
        if not case.is_reference:
            announce = functools.partial(log.step, task.name)
            complaints += _layouts(caller, expected, announce)
        if hasattr(problem, "invariants") and not case.is_reference:
            log.step(task.name, "invariants")
            complaints += problem.invariants(lambda changed: _fresh(caller, changed), inputs, dict(case.params))
        if payload["opcheck"]:
            log.step(task.name, "opcheck")
            complaints += _opcheck(caller, inputs)
    if device != "cpu":
        torch.cuda.empty_cache()
    return {
        "complaints": complaints,
        "out_of_bounds": result.outside,
        "elements": as_json(result.elements) if result.elements else None,
        "reads": reads(case.root),
        "worst": {name: (value, as_json(detail)) for name, (value, detail) in result.worst.items()},
    }


@dataclass(slots=True)
class _Result:
    """What the calls on all inputs gave.

    Args:
        worst: fact → its largest error (``None`` if not finite) and the input it occurred on.
        elements: the first wrong ones.
        outside: whether a call wrote out of bounds.
    """

    complaints: list[str] = field(default_factory=list)
    worst: dict[str, tuple[float | None, Detail]] = field(default_factory=dict)
    elements: WrongElements | None = None
    outside: bool = False

    def add(self, caller: Caller, outputs: Outputs, expected: Expected, where: WorstInput) -> None:
        """Calls once on these inputs, and compares."""
        for cost in expected.cost.values():
            self._keep("quantization_max_error", cost.max, where)
            self._keep("quantization_frobenius_error", cost.frobenius, where)
        wrong = self._compare(caller, outputs, expected, where)
        self.complaints += [f"{text}, on seed {where.seed}, kind {where.kind}" for text in wrong]

    def _compare(self, caller: Caller, outputs: Outputs, expected: Expected, where: WorstInput) -> list[str]:
        inputs, reference = expected.inputs, expected.reference
        outputs.poison()
        guarded, bands = (dict(inputs), {}) if caller.case.is_reference else guard_inputs(inputs)
        caller.call(guarded, outputs)
        for name, answer in reference.items():
            if outputs[name].shape != answer.shape:
                return [f"{name}: expected shape {list(answer.shape)}, found {list(outputs[name].shape)}"]
        poison = {name: guard.unwritten() for name, guard in outputs.guards.items()}
        flags, errors = examined(
            {("input", name): band.is_changed() for name, band in bands.items()}
            | unsound(outputs, poison, reference, partial=expected.partial),
            expected.pairs(outputs),
        )
        poison = {name: poison[name] for kind, name in flags if kind == "unwritten"}
        changed = [name for kind, name in flags if kind == "input"]
        written = any_of({name: differing(inputs[name], guarded[name]).any() for name in changed})
        complaints = [f"{name}: an input was written to" for name in written]
        damage = {name: text for name in changed if (text := bands[name].damage())}
        complaints += [f"{name}: out-of-bounds write next to an input: {text}" for name, text in damage.items()]
        unwritten = _unwritten(caller, poison, guarded)
        complaints += soundness(outputs, unwritten, reference, partial=expected.partial) if flags else []
        self.outside = bool(damage) or any(kind == "guard" for kind, _ in flags)
        for name, measured in errors.items():
            values = (measured.max, measured.mean, measured.frobenius, *over_class(measured, expected.entitled[name]))
            for fact, value in zip(FACT_NAMES, values, strict=True):
                self._keep_error(fact, value, where, caller.problem.KINDS)
            if not complaints:
                complaints += expected.judged(name, measured)
        if complaints:
            self.elements = self.elements or locate(outputs, unwritten, expected)
        return complaints

    def _keep_error(self, fact: str, value: float, where: WorstInput, kinds: Sequence[str]) -> None:
        # For edge inputs, only errors relative to the class: absolute ones grow with the values.
        if where.kind in kinds or "over_class" in fact:
            self._keep(fact, value, where)
        if where.kind == kinds[0] and f"normal_{fact}" in NORMAL:
            self._keep(f"normal_{fact}", value, where)

    def _keep(self, name: str, value: float, where: WorstInput) -> None:
        """Keeps the larger error. A value that is not finite is worse than any other and is recorded as unmeasured."""
        before, _ = self.worst.get(name, (-math.inf, where))
        if before is not None and not math.isfinite(value):
            self.worst[name] = None, NOT_FINITE(str(value), where.seed, where.kind)
        elif before is not None and value > before:
            self.worst[name] = value, where


def _unwritten(caller: Caller, poison: Mapping[str, Tensor], inputs: Mapping[str, Any]) -> dict[str, Tensor]:
    """Masks of the elements that a call does not write. ``poison``: masks, none empty, of those that equal the poison.

    An answer may equal the poison (-1 as an integer, or a NaN with the same bits), so an element is unwritten only if
    it also keeps a second, different poison.
    """
    if not poison:
        return {}
    second = _fresh(caller, inputs, _OTHER_POISON)
    return {name: mask & second.guards[name].unwritten() for name, mask in poison.items()}


def _fresh(caller: Caller, inputs: Mapping[str, Any], fill: int = POISON_BYTE) -> Outputs:
    outputs = caller.outputs(fill)
    caller.call(inputs, outputs)
    synchronize(caller.device)
    return outputs


def _repeat(caller: Caller, inputs: Mapping[str, Any], repeats: int) -> list[str]:
    """Complains unless every call gives bit-identical outputs, whatever the outputs contained before."""
    import torch

    first = _fresh(caller, inputs)
    # One allocation, with a second poison, for all further calls.
    again = caller.outputs(_OTHER_POISON)
    for start in range(2, repeats + 1, _CALLS_PER_READ):
        calls = range(start, min(start + _CALLS_PER_READ, repeats + 1))
        # Reading each comparison from the device would take longer than the calls.
        differ = torch.zeros(len(calls), dtype=torch.bool, device=caller.device)
        masks = {name: torch.zeros_like(value, dtype=torch.bool) for name, value in first.items()}
        for i in range(len(calls)):
            again.poison()
            caller.call(inputs, again)
            for name, mask in masks.items():
                now = differing(first[name], again[name])
                mask |= now
                differ[i] |= now.any()
        synchronize(caller.device)
        if differ.any():
            name, mask = next((n, m) for n, m in masks.items() if m.any())
            return [
                f"{name}: call {calls[int(differ.nonzero()[0])]} of {repeats} differs from the first; calls up to "
                f"{calls[-1]} differ in {int(mask.sum())} of {mask.numel()} elements: a race, or an unwritten element"
            ]
    return []


def _layouts(caller: Caller, expected: Expected, announce: Callable[[str], None]) -> list[str]:
    """Complains if a tensor of an unusual layout is neither refused by its name nor handled correctly."""
    complaints, inputs = [], expected.inputs
    for argument in (a for a in caller.case.arguments if a.kind == "tensor"):
        name = argument.name
        for how in LAYOUTS if argument.strides else LAYOUTS[:2]:
            outputs = caller.outputs()
            tensor = (outputs if argument.mutable else inputs).get(name)
            if tensor is None:
                continue  # absent
            other = laid_out(tensor, how)
            if how != "misaligned" and other.is_contiguous():
                continue  # a single element, or a single row
            announce(f"{name} {how}")
            arguments = inputs if argument.mutable else {**inputs, name: other}
            outputs.update({name: other} if argument.mutable else {})
            try:
                caller.call(arguments, outputs)
                synchronize(caller.device)
            except Exception as error:
                if is_poisoned(caller.device):
                    raise  # the tensor was accepted, and the device is unusable now
                if not re.search(rf"\b{re.escape(name)}\b", str(error)):
                    complaints.append(f"{name}, {how}: expected an answer, or an error naming it: {describe(error)}")
                continue
            wrong = expected.complaints(outputs)
            complaints += [f"{name}, {how}: accepted, but the answer is wrong: {text}" for text in wrong[:1]]
    return complaints


def _opcheck(caller: Caller, inputs: Mapping[str, Any]) -> list[str]:
    """Runs ``torch.library.opcheck``, which checks the operator against its schema."""
    import torch

    # Cloned and zeroed, since torch would report NaN, and outputs that share a storage, as errors.
    outputs = {name: tensor.clone() for name, tensor in caller.outputs(0).items()}
    caller.load(inputs, outputs)
    target: Any = caller.target
    tests = ["test_schema", "test_autograd_registration", "test_faketensor", "test_aot_dispatch_dynamic"]
    if any(a.dtype.startswith("float8") for a in caller.case.arguments):
        tests.remove("test_schema")  # it multiplies the tensors, which torch does not support for float8
    try:
        torch.library.opcheck(target, tuple(caller.arguments(inputs, outputs)), test_utils=tests)
    except Exception as error:
        return [f"torch.library.opcheck: {describe(error)}"]
    return []


if __name__ == "__main__":
    serve(perform, modules=IMPORTS)
