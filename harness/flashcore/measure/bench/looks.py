"""Bytes of a call's outputs at random places, kept and poisoned by the spacer that follows it.

So each call must write all of its outputs, and any of them can be judged later: not even the harness knows which while
they run. The byte is an element's last, so that a poisoned element is a NaN or far from any answer.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from torch import Tensor

#: Places in all outputs of a call, a thread of the spacer for each.
PLACES = 512


class Looks:
    """Looks at the calls that write these tensors in turns.

    Args:
        outputs: the tensors of each call, of the same sizes and dtypes.
    """

    def __init__(self, outputs: Sequence[Sequence[Tensor]]) -> None:
        import torch

        self._outputs = [[one.view(-1).view(torch.uint8) for one in each] for each in outputs]
        self._rows: dict[tuple[str, int], Tensor] = {}
        #: Of each tensor: bytes of an element, and the elements at which its parts begin, then its end.
        self._parts: list[tuple[int, Tensor]] = []
        for one in outputs[0]:
            count = min(PLACES // len(outputs[0]), one.numel())
            parts = torch.arange(count + 1, device=one.device) * one.numel() // count
            self._parts.append((one.element_size(), parts))
        self.count = sum(len(parts) - 1 for _, parts in self._parts)
        self._places = torch.empty(len(outputs), self.count, dtype=torch.int64, device=parts.device)
        self.draw()

    def draw(self) -> None:
        """Chooses other places, one in each part of a tensor."""
        import torch

        self._offsets = []
        for size, parts in self._parts:
            widths = parts.diff()
            drawn = (torch.rand_like(widths, dtype=torch.float64) * widths).long()
            self._offsets.append((parts[:-1] + drawn + 1) * size - 1)
        for places, each in zip(self._places, self._outputs, strict=True):
            pairs = zip(each, self._offsets, strict=True)
            places.copy_(torch.cat([one.data_ptr() + offsets for one, offsets in pairs]))

    def at(self, regime: str, calls: int) -> Callable[[int], tuple[int, int, int]]:
        """A function: a sample's call → where its places are, where to keep what it wrote there, and their number."""
        rows = self._rows[regime, calls] = self._places.new_empty(calls, self.count).byte()
        return lambda i: (self._places[i % len(self._places)].data_ptr(), rows[i].data_ptr(), self.count)

    def restore(self, i: int, regime: str, calls: int) -> None:
        """Writes into outputs ``i``, at each place, what was there after a random one of the calls that wrote them."""
        import torch

        rows = self._rows[regime, calls]
        pairs = list(zip(self._outputs[i], self._offsets, strict=True))
        if (calls - 1) % len(self._places) == i:  # no spacer follows the last call
            rows[-1] = torch.cat([one[offsets] for one, offsets in pairs])
        rows = rows[i :: len(self._places)]
        values = rows.gather(0, torch.randint(len(rows), (1, self.count), device=rows.device))[0]
        for one, offsets in pairs:
            one[offsets], values = values[: len(offsets)], values[len(offsets) :]
