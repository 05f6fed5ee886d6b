"""The pattern of an answer's wrong elements."""

from __future__ import annotations

from typing import Any

import pytest

from tests.support.late import optional

torch = optional("torch")

from flashcore.runner.wrong_elements import pattern  # noqa: E402

EVERY = slice(None)


@pytest.mark.parametrize(
    ("indices", "name"),
    [
        ((EVERY, slice(80, None)), "last_tile"),
        ((slice(60, None), EVERY), "last_tile"),
        ((3, slice(32, 64)), "one_warp"),
        ((EVERY, slice(32, 64)), "one_warp"),
        ((EVERY, slice(7, None, 32)), "one_lane"),
        ((3, 40), "one_element"),
        (([3, 5, 9], [1, 70, 33]), "scattered"),
        ((EVERY, slice(20, None)), "scattered"),
        ((EVERY, EVERY), "all"),
    ],
)
def test_a_pattern_is_named(indices: Any, name: str) -> None:
    answer = torch.arange(64 * 128.0, dtype=torch.double).reshape(64, 128)
    output = answer.clone()
    output[indices] += 1
    assert pattern(output != answer, output, answer, 1e-3) == name


@pytest.mark.parametrize("sizes", [(8, 8), (3, 5), (2, 4, 6)])
def test_a_transposed_answer(sizes: tuple[int, ...]) -> None:
    answer = torch.randn(sizes, dtype=torch.double)
    output = answer.mT.contiguous().reshape(sizes)
    assert pattern(output != answer, output, answer, 1e-3) == "transposed"


@pytest.mark.parametrize("sizes", [(), (4,), (1, 4)])
def test_an_answer_without_columns_or_rows_is_not_transposed(sizes: tuple[int, ...]) -> None:
    answer = torch.ones(sizes, dtype=torch.double)
    assert pattern(answer != 0, answer + 1, answer, 1e-3) == "all"
