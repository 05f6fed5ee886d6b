"""One call of a kernel: the case it is told, its tensors and its answer."""

from __future__ import annotations

import contextlib
import dataclasses
import os
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from flashcore.errors import CapabilityError, FlashcoreError, UsageError
from flashcore.machine import python_process
from flashcore.runner import kernel_call
from flashcore.runner.kernel_call import Caller, Compiled, KernelCall, Launched
from tests import update_cases
from tests.softmax_cases import case
from tests.support.late import optional

torch = optional("torch")


def test_case_survives_json() -> None:
    one = case("right")
    assert KernelCall.from_json(one.to_json()) == one


LAUNCH = {"code": "c0de", "grid": [4, 1, 1], "arguments": ["x", "out"]}


def traced(calls: Any, root: Path) -> KernelCall:
    """A callable that writes its argument times ``FACTOR``, compiled to make these launches."""
    (root / "twice.py").write_text("def twice(x, out, scale, FACTOR):\n    out.copy_(x * FACTOR)\n", encoding="utf-8")
    target = Compiled("twice.py:twice", __name__, calls, {"FACTOR": 3})
    return dataclasses.replace(case("right"), root=str(root), target=target)


#: What a call of the language :func:`run` finds: names of tensors, and how its launches differ.
CALLS: list[list[str]] = []
DIFFERENCE = ""


def run(call: Callable[[], object], names: Mapping[int, str], expected: Sequence[Sequence[Mapping[str, Any]]]) -> str:
    """As of a language's module."""
    assert expected == ([LAUNCH],)
    CALLS.append(sorted(names.values()))
    call()
    return DIFFERENCE


@pytest.mark.parametrize("words", ["", "code was c0de when it was compiled, 0ther when it ran"])
def test_the_first_call_is_held_to_what_was_compiled(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, words: str
) -> None:
    monkeypatch.setattr(sys.modules[__name__], "DIFFERENCE", words)
    monkeypatch.setenv("TRITON_CACHE_AUTOTUNING", "1")
    CALLS.clear()
    one = traced(([LAUNCH],), tmp_path)
    assert not one.is_reference and KernelCall.from_json(one.to_json()) == one
    caller = Caller(one, ModuleType("problem"), "cpu")
    x, outputs = torch.ones(6, 37), caller.outputs()
    for _ in range(2):
        with pytest.raises(FlashcoreError, match=words) if words else contextlib.nullcontext():
            caller.call({"x": x, "scale": 1.0}, outputs)
    assert [["out", "x"]] * (2 if words else 1) == CALLS  # nothing wrong is taken for right later
    assert torch.equal(outputs["out"], torch.full_like(outputs["out"], 3))


def target(case: KernelCall) -> Callable[..., None]:
    """As of a launcher's module."""
    return lambda x, out, scale: out.copy_(x * case.target.plan["factor"])  # type: ignore[union-attr]


def test_a_launcher_is_called_in_place_of_the_host_code() -> None:
    one = dataclasses.replace(case("right"), target=Launched(f"{__name__}:target", {}, {"factor": 5}, ([LAUNCH],)))
    CALLS.clear()
    caller = Caller(KernelCall.from_json(one.to_json()), ModuleType("problem"), "cpu")
    x, outputs = torch.ones(6, 37), caller.outputs()
    caller.call({"x": x, "scale": 1.0}, outputs)
    assert torch.equal(outputs["out"], torch.full_like(outputs["out"], 5)) and not CALLS


def test_recorded_kernels_are_to_be_compiled_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("TRITON_CACHE_DIR", "TORCHINDUCTOR_CACHE_DIR", "FLASHCORE_CUBINS"):
        monkeypatch.setenv(name, "theirs")
    monkeypatch.setattr("flashcore.readers.cubin.code_of", lambda data: data.decode())
    one = traced(([{"code": "c0de", "grid": [0, 0, 0]}],), tmp_path)
    caller = Caller(one, ModuleType("problem"), "cpu")
    x, outputs = torch.ones(6, 37), caller.outputs()
    with pytest.raises(FlashcoreError, match="1 of 1 recorded kernels are not among the 0 compiled"):
        caller.call({"x": x, "scale": 1.0}, outputs)
    left = Path(os.environ["TRITON_CACHE_DIR"], "0", "k.cubin")
    left.parent.mkdir()
    left.write_bytes(b"c0de")
    caller.call({"x": x, "scale": 1.0}, outputs)


def given() -> dict[str, Any]:
    a, b, c = (torch.ones(*sizes) for sizes in ((5, 12), (12, 7), (5, 7)))
    return {"a": a, "b": b, "c": c, "bias": None, "alpha": 1.0, "beta": 3.0}


@pytest.mark.parametrize(
    ("change", "bias", "words"),
    [
        ({"c": lambda: None}, False, r"initial content of c, float32 \[5, 7\], found none\n  hint: the manifest lists"),
        ({"c": lambda: torch.ones(7, 5)}, False, r"\[5, 7\], found torch.float32 \[7, 5\]"),
        ({"c": lambda: torch.ones(5, 7).double()}, False, r"found torch.float64 \[5, 7\]"),
        ({"c": lambda: 1.0}, False, r"float32 \[5, 7\], found 1.0"),
        ({"b": lambda: None}, False, "expected make_inputs\\(\\) to return b, found none"),
        ({"bias": lambda: torch.ones(7)}, False, "to return no bias, as bias = false declares, found torch"),
        ({}, True, "expected make_inputs\\(\\) to return a tensor bias, as shape small declares, found none"),
    ],
)
def test_inputs_that_are_not_what_the_schema_says(
    change: Mapping[str, Callable[[], Any]], bias: bool, words: str
) -> None:
    reference = dataclasses.replace(
        update_cases.case("in_place", bias=bias), target=Compiled("peers.py:in_place", __name__, ([LAUNCH],))
    )
    caller = Caller(reference, ModuleType("problem"), "cpu")
    caller.target = lambda *_: None
    with pytest.raises(UsageError, match=words):
        caller.call({**given(), **{name: make() for name, make in change.items()}}, caller.outputs())


def test_each_call_starts_from_what_the_inputs_hold_and_leaves_them_alone() -> None:
    caller = Caller(update_cases.case("in_place", reference=True), ModuleType("problem"), "cpu")
    inputs, outputs = given(), caller.outputs()
    assert list(outputs) == ["c"] and not caller.outputs(inout=False)
    for _ in range(3):
        caller.call(inputs, outputs)
        assert torch.equal(outputs["c"], torch.full((5, 7), 15.0))
    assert torch.equal(inputs["c"], torch.ones(5, 7))
    assert KernelCall.from_json(caller.case.to_json()) == caller.case


def test_a_child_that_leaves_at_once_loses_nothing_that_was_printed(tmp_path: Path) -> None:
    code = (
        "import atexit, ctypes; from flashcore.runner.kernel_call import leave\n"
        "atexit.register(print, 'at its exit'); print('of Python')\n"
        "ctypes.CDLL(None).printf(b'of a launcher\\n'); leave(3)"
    )
    environment = {n: v for n, v in python_process.environment().items() if n != "PYTHONUNBUFFERED"}
    with (tmp_path / "log").open("wb") as log:
        done = subprocess.run([sys.executable, "-c", code], env=environment, stdout=log, check=False)
    message = (tmp_path / "log").read_text().splitlines()
    assert done.returncode == 3 and sorted(message) == ["at its exit", "of Python", "of a launcher"]


@pytest.mark.parametrize(
    ("device", "available", "lacks"), [("cpu", False, False), ("cuda", True, False), ("cuda", False, True)]
)
def test_only_a_gpu_that_is_not_there_is_lacking(
    device: str, available: bool, lacks: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("torch.cuda.is_available", lambda: available)
    with pytest.raises(CapabilityError, match=r"no CUDA GPU .*: torch ") if lacks else contextlib.nullcontext():
        kernel_call.require_device(device)
