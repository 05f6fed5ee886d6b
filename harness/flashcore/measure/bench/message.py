"""The message of the child that times: everything it measured of one shape, for its parent to judge."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Self

from flashcore.errors import RecordError
from flashcore.model.causes import Detail, as_json, from_json

#: By mode: us per call.
Series = Mapping[str, Sequence[float]]


@dataclass(frozen=True, slots=True, kw_only=True)
class CaseTimes:
    """The times of one case.

    Args:
        calls: of single calls, in the regimes that are latencies.
        kernel_clock: facts that the kernel measured itself.
        kernels, copies: of one call, the fewest in any captured graph; ``None`` where nothing is captured.
        launches, eager_calls: calls in one back-to-back sample, and in an eager one.
        seconds: all its samples took.
        proved: mode → the turns whose answers were right.
        new: us of a call on new data.
        stopped: the modes in which it was timed no further after a first round.
    """

    samples: Series
    calls: Series
    kernel_clock: Mapping[str, float]
    kernels: int | None
    copies: int
    launches: int
    eager_calls: int
    seconds: float
    proved: Mapping[str, Sequence[int]]
    new: float | None
    stopped: Sequence[str]


@dataclass(frozen=True, slots=True, kw_only=True)
class ShapeTimes:
    """The times of one shape's cases, by variant.

    Args:
        failed: variant → why it has no times.
        empty: of an empty launch, timed in turn with the cases.
        clock: what times are read from.
        doubt: us by which the time of a single call may be off.
        state: of the GPU meanwhile; see :class:`flashcore.measure.bench.interleave.Watch`.
        drawn: the seed of what was chosen at random.
    """

    variants: Mapping[str, CaseTimes]
    failed: Mapping[str, Detail]
    empty: Series
    clock: str
    doubt: float
    state: Mapping[str, Any]
    drawn: int

    def to_json(self) -> dict[str, Any]:
        return asdict(self) | {"failed": {variant: as_json(cause) for variant, cause in self.failed.items()}}

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Self:
        """The inverse of :meth:`to_json`.

        Raises:
            RecordError: the data has another form, which another version of flashcore wrote.
        """
        try:
            variants = {variant: CaseTimes(**times) for variant, times in data["variants"].items()}
            failed = {variant: from_json(cause) for variant, cause in data["failed"].items()}
            return cls(**{**data, "variants": variants, "failed": failed})
        except (AttributeError, LookupError, TypeError, ValueError) as error:
            actual = f"expected times as this version of flashcore writes them, found others ({error})"
            raise RecordError(f"{actual}\n  hint: measure again") from error
