"""What counts as the same code when two revisions are compared."""

from __future__ import annotations

import dataclasses

import pytest

from flashcore.model.record import Built, Launch, Plan
from flashcore.revisions import match_cases
from tests import factory

SUITE = factory.record().suite
VARIANT, SHAPE = SUITE.variants["fast"], SUITE.shapes["mission"]


def side(host: str = "host", **launched: object) -> match_cases.Side:
    """One revision's build of one variant."""
    artifact = factory.artifact("fast", "sm_90a", host=host, cxx="g++")
    launch = dataclasses.replace(Launch("k", (1, 1, 1), (64, 1, 1), (1, 1, 1), 0), **launched)  # type: ignore[arg-type]
    built = Built("13.0.88", (artifact,), (Plan("fast", "mission", (launch,), 0),))
    return match_cases.Side(None, built)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("after", "same"),
    [
        (side(), True),
        (side(host="another"), False),  # issue 10, item 1: a doubled scale in the launcher
        (side(programmatic=True), False),
        (side(cooperative=True), False),
        (side(cluster=(2, 1, 1)), False),
        (side(dynamic_smem=16), False),
    ],
)
def test_the_same_code_has_the_same_host_code_and_launch(after: match_cases.Side, same: bool) -> None:
    assert match_cases._same_code(side(), after, VARIANT, VARIANT, SHAPE) is same
