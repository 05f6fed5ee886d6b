"""Plans of CUDA variants: the host code runs once, without a GPU, on placeholder addresses."""

from __future__ import annotations

import math
import shutil
from pathlib import Path
from typing import Any

from flashcore.errors import FlashcoreError
from flashcore.features.recorded.calls import recorded_call
from flashcore.model.cause import Cause, cause_text
from flashcore.model.record import Artifact
from flashcore.runner.kernel_call import KernelCall
from flashcore_judge.launcher.plan import Launch, Plan, Tensor, Value, tensors_of

_MOST_ITEM = 8  # bytes of an element
_MAP_BYTES = 128  # a parameter of this size may hold a tensor map, which hides its address


def planned(case: KernelCall, inputs: dict[str, Any], artifact: Artifact, folder: Path) -> Plan:
    """The plan of a variant's launches on inputs with these numbers; its cubin is copied to ``folder``.

    Raises:
        FlashcoreError: it refuses the shape, or a plan cannot hold one of the arguments.
        CapabilityError: there is no compiler.
    """
    file = Path(shutil.copy(artifact.cubin or "", folder / "c.cubin"))
    call = recorded_call(artifact, case.arguments, {**case.params, **inputs})
    if isinstance(call, Cause):
        raise FlashcoreError(f"{case.name}: expected launches, found: {cause_text(call)}")
    tensors = tensors_of(case)
    if call.workspace:
        tensors["workspace"] = Tensor(dtype="uint8", sizes=[call.workspace], role="workspace")
    ranges = {
        name: range(place, place + _MOST_ITEM * math.prod(tensors[name].sizes) + 1)
        for name, place in call.addresses.items()
    }
    launches = [
        Launch(cubin=file.name, arguments=[_argument(content, ranges) for content in contents], **launch)
        for launch, contents in zip(call.launches, call.arguments, strict=True)
    ]
    return Plan(tensors=tensors, launches=launches)


def _argument(content: bytes, places: dict[str, range]) -> list[Value]:
    """An argument; aligned words that are addresses in a tensor stand for it: other words may be two small numbers.

    Raises:
        FlashcoreError: it may be a tensor map.
    """
    if len(content) >= _MAP_BYTES:
        raise FlashcoreError(
            f"expected an argument below {_MAP_BYTES} bytes, found {len(content)}: it may be a tensor map"
        )
    addresses = [
        Value(at=8 * i, tensor=name, offset=word - place.start)
        for i, word in enumerate(memoryview(content[: len(content) & -8]).cast("Q"))
        for name, place in places.items()
        if word in place
    ]
    return addresses if addresses and len(content) == 8 else [Value(hex=content.hex()), *addresses]
