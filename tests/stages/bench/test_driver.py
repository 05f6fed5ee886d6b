"""What is asked of the driver, and what is not: a driver that notes it stands in."""

from __future__ import annotations

from typing import Any

import pytest

from flashcore.errors import CapabilityError
from flashcore.stages.bench.driver import Driver


class Noting:
    """A context with so many bytes of L2 set aside."""

    def __init__(self, aside: int, code: int = 0) -> None:
        self.aside, self.code, self.resets = aside, code, 0

    def cuCtxGetLimit(self, value: Any, limit: int) -> int:
        value._obj.value = self.aside if limit == 6 else 99
        return self.code

    def cuCtxResetPersistingL2Cache(self) -> int:
        self.resets += 1
        return 0


def of(cuda: Noting) -> Driver:
    driver = Driver.__new__(Driver)
    driver._cuda = cuda  # type: ignore[assignment]
    return driver


@pytest.mark.parametrize(("aside", "resets"), [(0, 0), (1 << 20, 2)])
def test_l2_is_reset_only_where_lines_can_persist(aside: int, resets: int) -> None:
    cuda = Noting(aside)
    for _ in range(2):
        of(cuda).reset_persisting_l2()
    assert cuda.resets == resets


def test_a_refusal_names_what_was_asked() -> None:
    with pytest.raises(
        CapabilityError, match="cuCtxGetLimit: expected that the CUDA driver does it, found its error 3"
    ):
        of(Noting(0, code=3)).reset_persisting_l2()
