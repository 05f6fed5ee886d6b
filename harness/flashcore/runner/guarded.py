"""Tensors between guard bands of poison, which reveal out-of-bounds writes and unwritten elements.

Only children import torch, so it is imported inside the functions.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Hashable, Mapping
from typing import TYPE_CHECKING, Any, TypeVar

if TYPE_CHECKING:
    from torch import Tensor

Key = TypeVar("Key", bound=Hashable)

#: Bytes of a guard band: the tensor's size, within these limits. Multiples of the allocator's alignment.
GUARD_BYTES, GUARD_MOST = 1 << 16, 1 << 24
_ALIGNED = 512
#: Every byte of an output before a call: a NaN in any float type.
POISON_BYTE = 0xFF


class Guarded:
    """A tensor between two guard bands.

    Args:
        fill: the byte that fills tensor and bands.
        room: a buffer of :meth:`bytes_of` bytes; allocated unless given.
        strides: strides of a tensor that is not contiguous; gaps between its elements are poisoned too.
    """

    def __init__(
        self,
        sizes: tuple[int, ...],
        dtype: str,
        device: str,
        fill: int = POISON_BYTE,
        room: Tensor | None = None,
        strides: tuple[int, ...] | None = None,
    ) -> None:
        import torch

        self._band, size, total = self._layout(sizes, dtype, strides)
        self._strided = strides is not None
        self.fill = fill
        self._end = self._band + size
        self._buffer = torch.empty(total, dtype=torch.uint8, device=device) if room is None else room
        elements = self._buffer[self._band : self._end].view(getattr(torch, dtype))
        self.tensor: Tensor = elements.view(sizes) if strides is None else elements.as_strided(sizes, strides)
        self.poison()

    @classmethod
    def bytes_of(cls, sizes: tuple[int, ...], dtype: str) -> int:
        """The size of a tensor with its bands, in bytes."""
        return cls._layout(sizes, dtype)[2]

    @staticmethod
    def _layout(sizes: tuple[int, ...], dtype: str, strides: tuple[int, ...] | None = None) -> tuple[int, int, int]:
        """Bytes of a band, of the tensor from its first to its last element, and of everything."""
        import torch

        count = math.prod(sizes)
        if strides is not None:
            count = 1 + sum((size - 1) * stride for size, stride in zip(sizes, strides, strict=True))
        size = count * int(getattr(torch, dtype).itemsize)
        padded = -(-size // _ALIGNED) * _ALIGNED
        band = min(max(padded, GUARD_BYTES), GUARD_MOST)
        return band, size, padded + 2 * band

    def poison(self) -> None:
        """Fills tensor and bands with poison."""
        self._buffer.fill_(self.fill)

    def write(self, values: Tensor) -> None:
        """Copies values into the tensor, and keeps them for :meth:`is_changed`."""
        write(self.tensor, values)
        self._written = self._buffer.clone()

    def is_changed(self) -> Tensor:
        """Whether the tensor or anything outside it was written since: a bool tensor on the device."""
        import torch

        return (self._buffer.view(torch.int64) != self._written.view(torch.int64)).any()

    def is_damaged(self) -> Tensor:
        """Whether anything outside the tensor was written: a bool tensor on the device."""
        before, after = self._buffer[: self._band], self._buffer[self._end :]
        damaged: Tensor = (before != self.fill).any() | (after != self.fill).any()
        return damaged | self._between().any() if self._strided else damaged

    def damage(self) -> str:
        """Describes the writes outside the tensor; empty if there are none."""
        for where, band, origin in (
            ("before its first", self._buffer[: self._band], self._band),
            ("past its last", self._buffer[self._end :], -1),
        ):
            if (touched := (band != self.fill).nonzero().flatten()).numel():
                first = int(touched[0])
                distance = origin - int(touched[-1]) if origin > 0 else first + 1
                return f"{touched.numel()} bytes written {where} element, the nearest {distance} bytes away"
        if self._strided:
            touched = self._between().nonzero()
            if len(touched):
                return (
                    f"{len(touched)} elements written in its gaps, the first {int(touched[0])} after its first element"
                )
        return ""

    def _between(self) -> Tensor:
        """Mask of written gaps, over the memory from the tensor's first to its last element."""
        touched = ~self._untouched()
        once(touched.as_strided(self.tensor.shape, self.tensor.stride())).fill_(False)
        return touched

    def _untouched(self) -> Tensor:
        """Mask of pure poison, over the memory from the tensor's first to its last element."""
        raw = self._buffer[self._band : self._end].view(-1, self.tensor.element_size())
        mask: Tensor = (raw == self.fill).all(dim=1)
        return mask

    def unwritten(self) -> Tensor:
        """Mask of the tensor's elements that are still poison."""
        import torch

        mask = self._untouched().as_strided(self.tensor.shape, self.tensor.stride())
        return mask if self.tensor.numel() else torch.zeros_like(mask)


def read(values: Mapping[Key, Tensor]) -> dict[Key, list[float]]:
    """The numbers in small tensors, with one read per device, which waits for it."""
    import torch

    numbers: dict[Key, list[float]] = {}
    for device in {value.device for value in values.values()}:
        on_device = {key: value for key, value in values.items() if value.device == device}
        flat = iter(torch.cat([value.double().flatten() for value in on_device.values()]).tolist())
        numbers |= {key: [next(flat) for _ in range(value.numel())] for key, value in on_device.items()}
    return numbers


def any_of(flags: Mapping[Key, Tensor]) -> list[Key]:
    """The keys of the true flags, with one read per device."""
    numbers = read(flags)
    return [key for key in flags if any(numbers[key])]


class Outputs(dict[str, "Tensor"]):
    """A call's output and in-out tensors, by name; :meth:`Caller.load` fills the latter. ``guards``: the guarded
    tensors that an operator writes.

    All are in one allocation, so that any write between them hits a band.

    Args:
        wanted: each output's sizes and dtype.
    """

    def __init__(
        self, wanted: Mapping[str, tuple[tuple[int, ...], str]], device: str = "cpu", fill: int = POISON_BYTE
    ) -> None:
        import torch

        rooms = [Guarded.bytes_of(*one) for one in wanted.values()]
        arena = torch.empty(sum(rooms), dtype=torch.uint8, device=device)
        parts = [arena[end - room : end] for room, end in zip(rooms, itertools.accumulate(rooms), strict=True)]
        self.guards = {
            name: Guarded(*one, device, fill, room) for (name, one), room in zip(wanted.items(), parts, strict=True)
        }
        super().__init__({name: guard.tensor for name, guard in self.guards.items()})

    def poison(self) -> None:
        """Fills every guarded output and its bands with poison."""
        for guard in self.guards.values():
            guard.poison()

    def joined(self, other: Outputs) -> Outputs:
        """The tensors of both, with their bands."""
        both = Outputs({})
        both.guards = {**self.guards, **other.guards}
        both.update({**self, **other})
        return both


def once(tensor: Tensor) -> Tensor:
    """A view of an expanded tensor that contains each element once."""
    for dim, (size, stride) in enumerate(zip(tensor.shape, tensor.stride(), strict=True)):
        if stride == 0 and size > 1:
            tensor = tensor.narrow(dim, 0, 1)
    return tensor


def write(into: Tensor, values: Tensor) -> None:
    """Copies values into a tensor; if it is expanded, the values must be expanded in the same way."""
    single = once(into)
    single.copy_(values[tuple(slice(size) for size in single.shape)])


def copied(value: Tensor, device: str = "") -> Tensor:
    """A copy with the tensor's layout, on its device or another."""
    import torch

    copy = torch.empty_strided(value.shape, value.stride(), dtype=value.dtype, device=device or value.device)
    write(copy, value)
    return copy


def guard_inputs(inputs: Mapping[str, Any]) -> tuple[dict[str, Any], dict[str, Guarded]]:
    """Copies of the tensors between bands of NaN, and the bands: an out-of-bounds read shows in the answer, an
    out-of-bounds write in the bands."""
    import torch

    copies, guards = dict(inputs), {}
    for name, value in inputs.items():
        if isinstance(value, torch.Tensor) and value.layout == torch.strided:
            strides = None if value.is_contiguous() else value.stride()
            dtype = str(value.dtype).removeprefix("torch.")
            guards[name] = Guarded(tuple(value.shape), dtype, str(value.device), strides=strides)
            guards[name].write(value)
            copies[name] = guards[name].tensor
    return copies, guards


#: The layouts of :func:`laid_out`; the last one only for tensors that may be strided.
LAYOUTS = ("misaligned", "strided", "apart")


def laid_out(value: Tensor, how: str) -> Tensor:
    """The tensor's values in an unusual layout: ``misaligned``, one element past 16-byte alignment; ``strided``, with
    an element of poison after each; ``apart``, with at least 16 bytes of poison after each row."""
    import torch

    if how == "apart":
        step = 16 // value.element_size()
        pitch = (value.shape[-1] // step + 2) * step
        rows = (*value.shape[:-1], pitch * value.element_size())
        room = torch.full(rows, POISON_BYTE, dtype=torch.uint8, device=value.device)
        return room.view(value.dtype)[..., : value.shape[-1]].copy_(value)
    count = 2 * value.numel() if how == "strided" else value.numel() + 1
    room = torch.full((count * value.element_size(),), POISON_BYTE, dtype=torch.uint8, device=value.device)
    elements = room.view(value.dtype)
    other = elements.view(*value.shape, 2)[..., 0] if how == "strided" else elements[1:].view(value.shape)
    return other.copy_(value)
