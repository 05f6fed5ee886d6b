"""Is it still right? Every case against fp64, on several seeds and kinds of input.

A variant is held to an emulation of its own rounding points on the same inputs (its tolerance class):
relative Frobenius error at most 1.5 times and largest error at most 2 times the emulation's, plus one unit
in the last place; and never beyond the problem's fence. Outputs are poisoned and lie between guard bands,
inputs lie between bands of NaN. Peers, whose rounding is their own, are held to the fence alone.

As a program (``python -m flashcore.stages.check.check TASKFILE JOURNAL``) this module is the child that does the work.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from flashcore.errors import UsageError
from flashcore.machine import python_process
from flashcore.model.catalogue import FACTS
from flashcore.model.record import CaseOutcome, Fact, Source, StageResult
from flashcore.stages.check.accuracy import Errors, differing, errors, judge, over_class, soundness
from flashcore.worker import journal, supervisor
from flashcore.worker.kernel_call import (
    POISON_BYTE,
    Caller,
    Case,
    Outputs,
    guard_inputs,
    is_poisoned,
    load_problem,
    require_device,
    synchronize,
)

if TYPE_CHECKING:
    from torch import Tensor

#: The module that the child runs.
TARGET = "flashcore.stages.check.check"
#: Cases a process. The journal keeps what was answered, so a fault costs no more in a long batch than in a short
#: one; a fresh process costs seconds.
_BATCH = 1024
#: Calls whose answers must be equal bit by bit.
REPEATS = 20

_OTHER_POISON = 0x5A

QUANTIZATION = ("quantization_max_error", "quantization_frobenius_error")  # of classes that quantise alone
FACT_NAMES = ("max_error", "mean_error", "frobenius_error", "max_error_over_class", "frobenius_over_class")


# --- the stage ----------------------------------------------------------------------------------


def run(
    cases: Sequence[Case],
    folder: Path,
    *,
    time_limit: float = 60.0,
    kinds: Sequence[str] | None = None,
    progress: Callable[[str], None] = lambda _: None,
    device: str = "cuda",
    repeats: int = REPEATS,
    opcheck: bool = True,
) -> StageResult:
    """Checks every case in child processes; resumable in ``folder``.

    Args:
        time_limit: seconds for each seed and kind of a case, before it counts as hung.
        kinds: the kinds of input to use; all that the problem knows unless given.
        repeats: calls of each case that must agree bit by bit.
        opcheck: whether each operator goes through ``torch.library.opcheck``, on its first shape.

    Raises:
        CapabilityError: there is no GPU.
        FlashcoreError: a journal cannot be written.
    """
    # Cases of a shape side by side: the child keeps the answers of one shape at a time.
    shapes = list(dict.fromkeys(c.shape for c in cases))
    first: dict[str, str] = {}
    tasks = []
    for case in sorted(cases, key=lambda c: shapes.index(c.shape)):
        first.setdefault(case.variant, case.name)
        payload = {
            "case": case.to_json(),
            "device": device,
            "kinds": None if kinds is None else list(kinds),
            "repeats": repeats,
            "opcheck": opcheck and not case.is_peer and first[case.variant] == case.name,
        }
        tasks.append(supervisor.Task(case.name, payload))

    def tell(result: supervisor.Result) -> None:
        complaints = _complaints(result)
        progress(f"{result.name}: " + (complaints[0] if complaints else "right"))

    results = supervisor.supervise(
        tasks,
        folder,
        lambda task_file, journal_file: python_process.command(TARGET, str(task_file), str(journal_file)),
        time_limit=time_limit,
        batch=_BATCH,
        on_progress=tell,
    )
    by_name = {r.name: r for r in results}
    facts: list[Fact] = []
    outcomes = []
    for case in cases:
        result = by_name[case.name]
        complaints = _complaints(result)
        outcomes.append(
            CaseOutcome(
                case.variant,
                case.shape,
                "check",
                "failed" if complaints else "ok",
                "; ".join(complaints[:3]) + (f"; and {len(complaints) - 3} more" if len(complaints) > 3 else ""),
                result.seconds,
            )
        )
        facts.extend(_facts(case, result))
    return StageResult(tuple(facts), tuple(outcomes))


def _complaints(result: supervisor.Result) -> list[str]:
    if result.status != "ok" or result.data is None:
        return [result.reason + (f" (in: {result.step})" if result.step else "")]
    return list(result.data["complaints"])


def _facts(case: Case, result: supervisor.Result) -> Iterator[Fact]:
    """What was measured; each worst over seeds and kinds, and unmeasured where nothing finite was."""
    worst = (result.data or {}).get("worst", {})
    for name in (*FACT_NAMES, *(n for n in QUANTIZATION if n in worst)):
        value, where = worst.get(name, (None, "not compared: " + (result.reason or "no answer to compare")))
        yield Fact(case.subject, name, value, FACTS[name].unit, Source.CHECK, where)


# --- the child ----------------------------------------------------------------------------------


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


def _perform(task: supervisor.Task, log: supervisor.Journal) -> dict[str, Any]:
    """Checks one case; what is wrong with it is data, so that its errors are kept as well."""
    import torch

    payload = task.payload
    case = Case.from_json(payload["case"])
    device = payload["device"]
    problem = load_problem(case.root, case.problem_file)
    kinds = payload["kinds"] or list(problem.KINDS)
    unknown = sorted(set(kinds) - set(problem.KINDS))
    if unknown:
        raise UsageError(f"kinds: expected some of {', '.join(problem.KINDS)}, found {', '.join(unknown)}")
    caller = Caller(case, problem, device)
    outputs = caller.outputs()
    complaints: list[str] = []
    worst: dict[str, tuple[float | None, str]] = {}
    for kind in kinds:
        for seed in case.seeds:
            where = f"seed {seed}, kind {kind}"
            log.step(task.name, where)
            inputs, reference, entitled, cost = _answers.get(case, problem, device, seed, kind)
            for own in (cost or {}).values():
                _keep_worst(worst, "quantization_max_error", own.max, where)
                _keep_worst(worst, "quantization_frobenius_error", own.frobenius, where)
            wrong = _compare(caller, outputs, inputs, reference, entitled, worst, where)
            complaints += [f"{text}, on {where}" for text in wrong]
            if wrong and outputs.guards and any(g.damage() for g in outputs.guards.values()):
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
    given = dict(inputs) if case.is_peer else guard_inputs(inputs)
    caller.call(given, outputs)
    synchronize(caller.device)
    complaints = [] if case.is_peer else _changed(inputs, given)
    for name, answer in reference.items():
        if outputs[name].shape != answer.shape:
            return [f"{name}: expected shape {list(answer.shape)}, found {list(outputs[name].shape)}"]
    complaints += soundness(outputs, _unwritten(caller, outputs, given), reference)
    for name, answer in reference.items():
        own = errors(outputs[name], answer)
        ratio_max, ratio_frobenius = over_class(own, entitled[name])
        values = (own.max, own.mean, own.frobenius, ratio_max, ratio_frobenius)
        for fact, value in zip(FACT_NAMES, values, strict=True):
            _keep_worst(worst, fact, value, where)
        if not complaints:
            fence = caller.problem.FENCE
            complaints += judge(own, entitled[name], case.tolerance, fence, peer=case.is_peer)
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


def _keep_worst(worst: dict[str, tuple[float | None, str]], name: str, value: float, where: str) -> None:
    """Keeps the larger; a value that is not finite is worse than any, and is told as unmeasured."""
    if name in worst and worst[name][0] is None:
        return
    if not math.isfinite(value):
        worst[name] = (None, f"found {value} on {where}")
        return
    before = worst[name][0] if name in worst else None
    if before is None or value > before:
        worst[name] = (value, f"worst on {where}")


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

    outputs = caller.outputs(0)  # NaN is unequal to itself, which torch would hold against us
    target: Any = caller.target
    tests = ["test_schema", "test_autograd_registration", "test_faketensor", "test_aot_dispatch_dynamic"]
    if any(a.dtype.startswith("float8") for a in caller.case.arguments):
        tests.remove("test_schema")  # it multiplies the tensors, which torch cannot do in 8 bits
    try:
        torch.library.opcheck(target, tuple(caller.arguments(inputs, outputs)), test_utils=tests)
    except Exception as error:
        return [f"torch.library.opcheck: {journal.describe(error)}"]
    return []


def main(arguments: Sequence[str]) -> int:
    """The child: ``TASKFILE JOURNAL``."""
    import json

    device = json.loads(Path(arguments[0]).read_text("utf-8"))["tasks"][0]["payload"]["device"]
    return supervisor.child(
        arguments, _perform, prepare=lambda: require_device(device), is_poisoned=lambda: is_poisoned(device)
    )


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
