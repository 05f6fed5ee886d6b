"""A result's metrics as numbers, or why there is none."""

from __future__ import annotations

import math

import pytest

from flashcore.model.causes import NO_NUMBER, Caches, NotReturned
from flashcore.readers.ncu.results import LARGEST, Metric, Result

TIME = "gpu__time_duration.sum"


def result(**metrics: Metric) -> Result:
    named = {name.replace("___", "."): metric for name, metric in metrics.items()}
    return Result(0, "k", "kernel", (1, 1, 1), (32, 1, 1), (9, 0), named)


@pytest.mark.parametrize(
    ("value", "read", "cause"),
    [
        (3, 3.0, None),
        (0, 0.0, None),
        (2.5, 2.5, None),
        (2**53 + 1, 2**53 + 1, None),
        (LARGEST, LARGEST, None),
        (2 * LARGEST, None, "2e+30, which is no valid count"),
        (-1, None, "-1, which is no valid count"),
        (math.nan, None, "nan, which is not finite"),
        (math.inf, None, "inf, which is not finite"),
        ("n/a", None, "'n/a', which is not a number"),
        ("x" * 40, None, f"'{'x' * 40}', which is not a number"),
        ("x" * 41, None, f"'{'x' * 37}...', which is not a number"),
        (None, None, "no value"),
    ],
)
def test_a_metric_is_a_number_or_has_a_cause(value: float | str | None, read: float | None, cause: str | None) -> None:
    reading = result(m=Metric(value, "byte")).read("m")
    assert (reading.value, reading.unit) == (read, "byte") and (cause or "") in reading.note
    assert (reading.detail == "") is (cause is None) and (
        cause is None or getattr(reading.detail, "code", "") == NO_NUMBER.code
    )
    assert type(reading.value) is type(read)


def test_a_metric_that_is_not_there_was_not_returned() -> None:
    bare = result(empty=Metric(None))
    assert isinstance(bare.read("m").detail, NotReturned) and bare.number("m") is None
    assert bare.text("m") == bare.text("empty") == "" and result(m=Metric(0)).text("m") == "0"


def test_a_time_is_told_with_what_became_of_the_caches() -> None:
    timed = result(gpu__time_duration___sum=Metric(5), m=Metric(5))
    assert timed.read(TIME).detail == (timed.caches or "") and timed.read("m").detail == ""
    assert isinstance(timed.caches, Caches | None)


@pytest.mark.parametrize(("size", "cluster"), [(None, 1), (0, 1), (1, 1), (4, 4)])
def test_blocks_of_a_cluster(size: int | None, cluster: int) -> None:
    assert result(**({} if size is None else {"launch__cluster_size": Metric(size)})).cluster == cluster
