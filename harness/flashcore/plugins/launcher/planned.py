"""Plans of recorded launches, and the calls in check, bench and profile that they replace."""

from __future__ import annotations

import ast
import ctypes
import shutil
import tempfile
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from flashcore.errors import FlashcoreError
from flashcore.measure.workers.kernel_call import Case
from flashcore.plugins.launcher import program
from flashcore.plugins.launcher.plan import Launch, Plan, Tensor, Value, tensors_of
from flashcore.readers import cubin

_WORKSPACE = "workspace"


def planned(case: Case, cubins: Mapping[str, str], workspace: int, folder: Path) -> Plan:
    """The plan of the launches that a case was compiled for; its cubins are copied to ``folder``.

    Args:
        cubins: file by kernel.
        workspace: bytes of all workspaces. Each gets as many, since only their sum is recorded.

    Raises:
        FlashcoreError: an argument is none that a plan has.
    """
    tensors = tensors_of(case)
    files = {cubin.code_of(Path(file).read_bytes()): Path(file) for file in cubins.values()}
    launches, names = [], dict[str, str]()
    for (call,) in case.calls:
        file = files[call["code"]]
        names[f"c{file.stem}"] = str(shutil.copy(str(file), folder))
        (kernel,) = cubin.read(file, "sm_90").kernels
        unnamed = [_WORKSPACE if workspace else "0"] * (len(kernel.parameters) - len(call["arguments"]))  # Triton's own
        arguments = []
        for text, size in zip([*call["arguments"], *unnamed], kernel.parameters, strict=True):
            if text not in tensors and text.startswith(_WORKSPACE):
                text = text.replace(" ", "_")
                tensors[text] = Tensor(dtype="uint8", sizes=[max(workspace, 1)], role="workspace", byte=0)
            arguments.append([Value(tensor=text) if text in tensors else _number(text, size)])
        blocks, (x, y, z) = call["cluster"], call["grid"]
        programmatic, cooperative = call["flags"]
        launches.append(
            Launch(
                cubin=f"c{file.stem}",
                kernel=kernel.name,
                grid=[x * blocks, y, z],
                block=[call["threads"], 1, 1],
                cluster=[blocks, 1, 1],
                shared=call["shared"],
                programmatic=programmatic,
                cooperative=cooperative,
                arguments=arguments,
            )
        )
    return Plan(cubins={name: Path(file).name for name, file in names.items()}, tensors=tensors, launches=launches)


def _number(text: str, size: int) -> Value:
    try:
        value = ast.literal_eval(text) or 0  # None is an address that is not used
        types = {2: "f16", 4: "f32", 8: "f64"} if isinstance(value, float) else {1: "i8", 2: "i16", 4: "i32", 8: "i64"}
        return Value(type=types[size], value=value)
    except (ValueError, SyntaxError, LookupError):
        expected = f"expected a tensor or a number of {size} bytes as a kernel's argument"
        raise FlashcoreError(f"launcher: {expected}, found {text}") from None


def target(case: Case) -> Callable[..., None]:
    """What calls a case from its plan, in a process with torch: on the tensors that it is given and torch's current
    stream.

    Raises:
        FlashcoreError: the plan is refused, or cannot be loaded.
    """
    import torch

    library = ctypes.CDLL(str(program.library()))
    library.flashcore_plan_open.restype = library.flashcore_plan_launch.restype = ctypes.c_char_p
    torch.cuda.synchronize()  # makes the context
    opened = ctypes.c_void_p()
    with tempfile.TemporaryDirectory() as folder:
        plan = planned(case, case.launcher["cubins"], case.launcher["workspace"], Path(folder))
        path = Path(folder, "plan")
        path.write_text(plan.words(path.parent), encoding="utf-8")
        _raise(library.flashcore_plan_open(str(path).encode(), ctypes.byref(opened)))

    spaces = [name for name, tensor in plan.tensors.items() if tensor.role == "workspace"]
    room = {name: torch.zeros(plan.tensors[name].sizes, dtype=torch.uint8, device="cuda") for name in spaces}

    def call(*given: Any) -> None:
        addresses = {name: space.data_ptr() for name, space in room.items()}
        for a, value in zip(case.arguments, given, strict=True):
            if a.name not in plan.tensors and value is not None and value != case.params.get(a.name, a.default):
                raise FlashcoreError(
                    f"{a.name}: expected the value that its launches were recorded with, found {value}"
                )
            if a.name in plan.tensors:
                addresses[a.name] = value.data_ptr()
                if not value.is_contiguous() or addresses[a.name] % 16:
                    raise FlashcoreError(f"{a.name}: expected a contiguous tensor on 16 bytes, as in its plan")
        array = (ctypes.c_uint64 * len(plan.tensors))(*map(addresses.__getitem__, plan.tensors))
        stream = ctypes.c_void_p(torch.cuda.current_stream().cuda_stream)
        _raise(library.flashcore_plan_launch(opened, array, stream))

    return call


def _raise(message: bytes | None) -> None:
    if message:
        raise FlashcoreError(f"launcher: {message.decode(errors='replace')}")
