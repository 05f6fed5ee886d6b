"""The timing child's message: all measurements of one shape, for its parent to check."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Self

from flashcore.errors import RecordError
from flashcore.model.cause import Detail, as_json, from_json

#: By mode: us per call.
Series = Mapping[str, Sequence[float]]


@dataclass(frozen=True, slots=True, kw_only=True)
class CaseTimes:
    """The times of one case.

    Args:
        samples: mode → samples, us per call.
        calls: mode → times of single calls, in the modes that time them.
        kernel_clock: facts that the kernel measured itself.
        kernels, copies: per call, the fewest in any captured graph; ``None`` if nothing is captured.
        launches, eager_calls: calls per back-to-back and per eager sample.
        seconds: total time of all samples.
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
    stopped: Sequence[str]


@dataclass(frozen=True, slots=True, kw_only=True)
class ShapeTimes:
    """The times of one shape's cases.

    Args:
        variants: variant → its times.
        failed: variant → why it has no times, or void ones.
        empty: times of an empty launch, timed in the same rounds.
        clock: the source of the times.
        doubt: uncertainty of a single call's time, us.
        state: the GPU's state meanwhile; see :class:`flashcore.machine.gpu_state.Watch`.
    """

    variants: Mapping[str, CaseTimes]
    failed: Mapping[str, Detail]
    empty: Series
    clock: str
    doubt: float
    state: Mapping[str, Any]

    def to_json(self) -> dict[str, Any]:
        return asdict(self) | {"failed": {variant: as_json(cause) for variant, cause in self.failed.items()}}

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Self:
        """The inverse of :meth:`to_json`.

        Raises:
            RecordError: another version of flashcore wrote the data, in another format.
        """
        try:
            variants = {variant: CaseTimes(**times) for variant, times in data["variants"].items()}
            failed = {variant: from_json(cause) for variant, cause in data["failed"].items()}
            return cls(**{**data, "variants": variants, "failed": failed})
        except (AttributeError, LookupError, TypeError, ValueError) as error:
            raise RecordError(
                f"expected times in this version's format, found another format ({error})\n  hint: measure again"
            ) from error
