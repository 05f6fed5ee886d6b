"""Bytes of a call's outputs at random places, kept and poisoned by the spacer that follows it.

So each call must write all of its outputs, and any of them can be judged later: not even the harness knows which while
they run. The byte is an element's last, so that a poisoned element is a NaN or far from any answer.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from torch import Tensor

#: Draws what no launcher may know; a problem may seed Python's own generator.
DICE = random.SystemRandom()
#: Places in all outputs of a call, a thread of the spacer for each: 8 SMs have as many.
PLACES = 256


class Looks:
    """Looks at the calls that write these tensors in turns.

    Args:
        outputs: the tensors of each call, of the same sizes and dtypes.
    """

    def __init__(self, outputs: Sequence[Sequence[Tensor]]) -> None:
        import torch

        self._outputs = [[one.view(-1).view(torch.uint8) for one in each] for each in outputs]
        self._rows: dict[tuple[str, int], Tensor] = {}
        self._sizes = [(one.numel(), one.element_size()) for one in outputs[0]]
        self._counts = [min(max(1, PLACES // len(self._sizes)), elements) for elements, _ in self._sizes]
        shape = len(outputs), sum(self._counts)
        self._places = torch.empty(shape, dtype=torch.int64, device=outputs[0][0].device)
        self.draw()

    def draw(self) -> None:
        """Chooses other places."""
        import torch

        self._offsets = []
        for (elements, size), count in zip(self._sizes, self._counts, strict=True):
            parts = torch.arange(count + 1, device=self._places.device) * elements // count  # a place in each
            # A problem may seed torch's generator.
            at = (torch.rand(count, dtype=torch.float64, device=parts.device) + DICE.random()) % 1
            numbers = parts[:-1] + (at * parts.diff()).long()
            self._offsets.append(numbers * size + size - 1)
        for places, each in zip(self._places, self._outputs, strict=True):
            pairs = zip(each, self._offsets, strict=True)
            places.copy_(torch.cat([one.data_ptr() + offsets for one, offsets in pairs]))

    def at(self, regime: str, calls: int) -> Callable[[int], tuple[int, int, int]]:
        """A function: a sample's call → where its places are, where to keep what it wrote there, and their number; the
        last call is not looked at."""
        rows = self._rows[regime, calls] = self._places.new_empty(calls - 1, self._places.shape[1]).byte()
        return lambda i: (self._places[i % len(self._places)].data_ptr(), rows[i].data_ptr(), rows.shape[1])

    def restore(self, i: int, regime: str, calls: int) -> None:
        """Writes into outputs ``i``, at each place, what was there after a random one of the calls that wrote them."""
        import torch

        rows = self._rows[regime, calls][i :: len(self._places)]
        if not len(rows):
            return
        values = rows.gather(0, torch.randint(len(rows), (1, rows.shape[1]), device=rows.device))[0]
        for one, offsets in zip(self._outputs[i], self._offsets, strict=True):
            one[offsets], values = values[: len(offsets)], values[len(offsets) :]
