"""The ladder's steps are one change each, or say what else they change."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from flashcore.model.suite import Cuda
from flashcore.suites.load import load
from tests.conftest import ROOT

SUITE = load(ROOT / "kernels/attention")
BOUNDS = re.compile(r"__launch_bounds__\([^,()]+(?:,\s*(\w+))?\)")


def blocks(variant: str) -> set[str]:
    """The blocks per SM that its kernels' launch bounds request; "0" without launch bounds."""
    variant_under_test = SUITE.variants[variant]
    matches = BOUNDS.findall((Path(SUITE.root) / variant_under_test.kind.file).read_text(encoding="utf-8"))
    return {
        str(variant_under_test.config.get(requested, 0)) if requested.isidentifier() else requested or "0"
        for requested in matches
    }


@pytest.mark.parametrize("name", [v.name for v in SUITE.variants.values() if isinstance(v.kind, Cuda) and v.parent])
def test_a_step_that_changes_launch_bounds_beside_its_technique_says_so(name: str) -> None:
    variant = SUITE.variants[name]
    assert variant.parent is not None
    if blocks(name) != blocks(variant.parent):
        assert "launch bounds" in variant.also or "__launch_bounds__" in variant.technique
