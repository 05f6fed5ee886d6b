"""Where code hosts show what has no line of source."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from flashcore.gate.locate import Places
from flashcore.plugins.formats import fallback
from tests import factory


@pytest.mark.parametrize(
    ("there", "place"),
    [(["suite.toml", "flashcore.toml"], "suite.toml"), (["flashcore.toml"], "flashcore.toml"), ([], "flashcore.toml")],
)
def test_it_is_the_manifest_that_is_there(there: list[str], place: str, tmp_path: Path) -> None:
    for name in there:
        (tmp_path / name).touch()
    record = factory.record(factory.suite(root=str(tmp_path), manifests=("flashcore.toml",)))
    assert fallback.manifest(Places(record, tmp_path)).file == place
    bare = replace(record, suite=replace(record.suite, manifests=()))
    assert fallback.manifest(Places(bare, tmp_path)).file == "suite.toml"
