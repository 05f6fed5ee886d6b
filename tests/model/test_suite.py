"""The kinds of variant and the keys that declare them, and which shapes are one row."""

from dataclasses import replace
from typing import Any

import pytest

from flashcore.model.suite import (
    AheadOfTime,
    CudaSource,
    ForeignLauncher,
    PythonCallable,
    RecordedCubins,
    VariantKind,
    kind_of,
    manifest_keys,
)
from tests import factory


@pytest.mark.parametrize(
    ("kind", "file", "compiler"),
    [
        (CudaSource("a.cu"), "a.cu", "nvcc"),
        (ForeignLauncher("a.cu"), "a.cu", "nvcc"),
        (AheadOfTime("triton", "a.py:f"), "a.py", "triton"),
        (RecordedCubins("recorded", "a.py:f"), "a.py", ""),
        (PythonCallable("a.py:f"), "a.py", ""),
    ],
)
def test_a_kind_is_declared_by_the_keys_of_a_manifest(kind: VariantKind, file: str, compiler: str) -> None:
    assert (kind.file, kind.compiler) == (file, compiler)
    assert kind_of(manifest_keys(kind), ["triton"]) == kind


@pytest.mark.parametrize(
    ("changes", "same"),
    [
        ({}, True),  # derived: one problem, the same parameters
        ({"params": factory.LONG}, False),
        ({"problem": "general"}, False),
        ({"problem": "general", "params": {**factory.MISSION, "CAUSAL": 0}, "same_as": "mission"}, True),
        ({"problem": "general", "same_as": "removed"}, False),
    ],
)
def test_identical_shapes_are_one_row_that_ranks_as_its_first(changes: dict[str, Any], same: bool) -> None:
    other = replace(factory.shape("other"), rank_by="cold", **changes)
    shapes = [factory.shape("long", {"S": 1}), factory.shape(), other]
    rows = factory.suite(shapes=shapes).rows(shapes)
    named = [[(s.name, s.rank_by) for s in row] for row in rows[1:]]
    first = ("mission", "isolated")
    assert named == ([[first, ("other", "isolated")]] if same else [[first], [("other", "cold")]])
