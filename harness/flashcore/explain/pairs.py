"""Pairs the kernels of two builds by what they are: their names and their code, never their position."""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Callable, Hashable, Iterable, Sequence
from dataclasses import dataclass, field
from functools import cached_property

from flashcore.model.groups import grouped
from flashcore.readers.kernel_names import canonical, without_arguments

_MOST = 1 << 18  # pairs of kernels to compare in one group: more take seconds
#: A template argument that names its parameter, as in kernel languages: ``BLOCK=256``, ``columns%16``.
_NAMED = re.compile(r"(\w+)([=%]|:(?!:))(.*)")
_NUMBER = re.compile(r"\d+")
#: How much a kernel differs from an old one; ``None``: it is another.
_Cost = Callable[["KernelIdentity", "KernelIdentity"], "tuple[float, ...] | None"]


@dataclass(frozen=True)
class KernelIdentity:
    """A kernel of one build. ``code`` is the hash of its machine code, ``values`` are its other facts, if known."""

    name: str
    code: str = ""
    values: frozenset[Hashable] = field(default=frozenset(), compare=False)

    @cached_property
    def template(self) -> str:
        return without_arguments(self.name)

    @cached_property
    def arguments(self) -> dict[str, str]:
        """Template arguments by their parameter: its name, else its number."""
        words = enumerate(re.findall(r"[^<>,]+", canonical(self.name)))
        named = ((_NAMED.fullmatch(word), str(i), word) for i, word in words)
        return dict((match[1], match[3]) if match else (i, word) for match, i, word in named)


def paired(before: Iterable[KernelIdentity], after: Iterable[KernelIdentity]) -> dict[str, str]:
    """The names of kernels in ``after`` → their names in ``before``. The others are new, or gone.

    Kernels of one name are pairs. Of the rest, first kernels of the same code are, then the instantiations of a
    template that differ the least, then kernels with most of their values in common. If several fit equally, none does.
    """
    old, new = ({kernel.name: kernel for kernel in kernels} for kernels in (before, after))
    pairs = {name: name for name in new if name in old}
    stages: tuple[tuple[Callable[[KernelIdentity], str], _Cost], ...] = (
        (lambda kernel: kernel.code, _distance),
        (lambda kernel: kernel.template, _distance),
        (lambda kernel: "any", _unlike),
    )
    for group_of, cost in stages:
        paired_names = {*pairs.values()}
        gone = grouped((group_of(k), k) for name, k in old.items() if name not in paired_names)
        for group, kernels in grouped((group_of(k), k) for name, k in new.items() if name not in pairs).items():
            if group and group in gone:
                pairs |= _nearest(gone[group], kernels, cost)
    return pairs


def _distance(old: KernelIdentity, new: KernelIdentity) -> tuple[float, ...]:
    was, now = old.arguments, new.arguments
    changed = [(was.get(name, ""), now.get(name, "")) for name in {**was, **now} if was.get(name) != now.get(name)]
    numbers = [(int(a), int(b)) for a, b in changed if _NUMBER.fullmatch(a) and _NUMBER.fullmatch(b)]
    octaves = sum(abs(math.log2((a + 1) / (b + 1))) for a, b in numbers)
    return old.template != new.template, len(changed), octaves, -len(old.values & new.values)


def _unlike(old: KernelIdentity, new: KernelIdentity) -> tuple[float, ...] | None:
    common = len(old.values & new.values)
    return (-common,) if 2 * common > len(old.values) else None


def _nearest(gone: Sequence[KernelIdentity], new: Sequence[KernelIdentity], cost: _Cost) -> dict[str, str]:
    """The pairs of least cost, without kernels that several others fit equally."""
    pairs: dict[str, str] = {}
    settled: set[KernelIdentity] = set()
    if len(gone) * len(new) > _MOST:
        return pairs
    for _, fits in sorted(grouped((c, (k, old)) for old in gone for k in new if (c := cost(old, k))).items()):
        fits = [pair for pair in fits if settled.isdisjoint(pair)]
        uses = Counter(kernel for pair in fits for kernel in pair)
        pairs |= {k.name: old.name for k, old in fits if uses[k] == uses[old] == 1}
        settled.update(uses)
    return pairs
