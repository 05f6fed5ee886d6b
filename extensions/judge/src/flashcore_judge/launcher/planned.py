"""Plans of launches that a kernel language recorded."""

from __future__ import annotations

import ast
import shutil
import struct
from pathlib import Path

from flashcore.errors import FlashcoreError
from flashcore.readers import cubin
from flashcore.runner.kernel_call import KernelCall, Launched
from flashcore_judge.launcher.plan import Launch, Plan, Tensor, Value, tensors_of


def planned(case: KernelCall, folder: Path) -> Plan:
    """The plan of the launches that a case was compiled for; its cubins are copied to ``folder``.

    Raises:
        FlashcoreError: a plan cannot hold one of the arguments.
    """
    launched = case.target
    assert isinstance(launched, Launched)
    tensors, recorded = tensors_of(case), launched.plan
    workspace = recorded["workspace_bytes"]  # of all workspaces: each gets as many, since only their sum is recorded
    launches = []
    for (call,), launch in zip(launched.calls, recorded["launches"], strict=True):
        file = Path(shutil.copy(launched.cubins[launch["kernel"]], folder))
        (kernel,) = cubin.read(file, "sm_90").kernels
        # Triton adds parameters for its scratch memory.
        scratch = ["workspace" if workspace else "0"] * (len(kernel.parameters) - len(call["arguments"]))
        arguments = []
        for text, size in zip([*call["arguments"], *scratch], kernel.parameters, strict=True):
            if isinstance(text, list):
                arguments.append([Value(**part) for part in text])
                continue
            name = text.replace(" ", "_")
            if name.startswith("workspace"):
                tensors.setdefault(name, Tensor(dtype="uint8", sizes=[workspace or 1], role="workspace"))
            arguments.append([Value(tensor=name) if name in tensors else Value(hex=_number(text, size).hex())])
        launches.append(Launch(**{**launch, "cubin": file.name, "kernel": kernel.name, "arguments": arguments}))
    return Plan(tensors=tensors, launches=launches)


def _number(text: str, size: int) -> bytes:
    try:
        value = ast.literal_eval(text.replace("None", "0"))  # an unused address
        if isinstance(value, float):
            return struct.pack({2: "<e", 4: "<f", 8: "<d"}[size], value)
        return int.to_bytes(value, size, "little", signed=value < 0)
    except (ValueError, SyntaxError, LookupError, TypeError, OverflowError):
        raise FlashcoreError(
            f"launcher: expected a tensor or a number of {size} bytes as a kernel's argument, found {text}"
        ) from None
