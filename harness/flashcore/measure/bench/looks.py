"""Bytes of a call's outputs at random places, kept and poisoned right after each call of a sample with spacers.

So each call must write all of its outputs, and any of them can be judged later: not even the harness knows which while
they run. The byte is an element's last, so that a poisoned element is a NaN or far from any answer.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from flashcore.measure.bench.driver import Driver

if TYPE_CHECKING:
    from torch import Tensor

#: Places in a tensor.
PLACES = 512


class Looks:
    """Looks at the calls that write these tensors in turns.

    Args:
        outputs: the tensors of each call, of the same sizes and dtypes.
    """

    def __init__(self, driver: Driver, outputs: Sequence[Sequence[Tensor]]) -> None:
        import torch

        self._driver = driver
        self._rows: dict[tuple[str, int], Tensor] = {}
        self._bytes = [[one.view(-1).view(torch.uint8) for one in tensors] for tensors in outputs]
        device = outputs[0][0].device
        self._counts = [min(PLACES, one.numel()) for one in outputs[0]]
        self.count = sum(self._counts)
        pairs = list(zip(outputs[0], self._counts, strict=True))
        ends = [torch.arange(count + 1, device=device) * one.numel() // count for one, count in pairs]
        self._starts, self._widths = torch.cat([e[:-1] for e in ends]), torch.cat([e.diff() for e in ends])
        counts = torch.tensor(self._counts, device=device)
        self._sizes = torch.tensor([one.element_size() for one in outputs[0]], device=device).repeat_interleave(counts)
        bases = torch.tensor([[one.data_ptr() for one in tensors] for tensors in outputs], device=device)
        self._bases = bases.repeat_interleave(counts, 1)
        self._offsets, self._places = torch.zeros_like(self._bases), self._bases.clone()
        self.draw()

    def draw(self) -> None:
        """Chooses other places, one in each of as many parts of a tensor."""
        import torch

        drawn = (torch.rand(self._bases.shape, dtype=torch.float64, device=self._bases.device) * self._widths).long()
        self._offsets = (self._starts + drawn + 1) * self._sizes - 1
        self._places.copy_(self._bases + self._offsets)

    def looking(self, stream: int, regime: str, calls: int) -> Callable[[int], None]:
        """A function that looks at the outputs of one of the calls of a sample."""
        rows = self._rows[regime, calls] = self._places.new_empty(calls, self.count).byte()

        def look(call: int) -> None:
            places = self._places[call % len(self._bytes)]
            self._driver.look(stream, places.data_ptr(), rows[call].data_ptr(), self.count)

        return look

    def restore(self, i: int, regime: str, calls: int) -> None:
        """Writes into outputs ``i``, at each place, what was there after a random one of the calls that wrote them."""
        import torch

        rows = self._rows[regime, calls][i :: len(self._bytes)]
        values = rows.gather(0, torch.randint(len(rows), (1, self.count), device=rows.device))[0]
        at = 0
        for one, count in zip(self._bytes[i], self._counts, strict=True):
            one[self._offsets[i, at : at + count]] = values[at : at + count]
            at += count
