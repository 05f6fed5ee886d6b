"""A run's stored settings are read completely, or refused with a hint."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from flashcore.errors import UsageError
from flashcore.model.progress import silent
from flashcore.model.settings import Settings
from flashcore.pipeline import resume

SOURCE_HASHES = {"fast sm_80": "abc"}


def begun(profiles: Path, run: str = "20260102T030405Z-0001") -> Path:
    folder = profiles / f"{run}.partial"
    folder.mkdir()
    resume.remember(folder, Settings("suite", profiles=str(profiles), shapes=("small",)), SOURCE_HASHES, "H100")
    return folder


def test_it_is_there_and_back(tmp_path: Path) -> None:
    folder = begun(tmp_path)
    settings = Settings("suite", profiles=str(tmp_path))
    began = Settings("suite", profiles=str(tmp_path), shapes=("small",))
    assert resume.unfinished(settings, silent) == (folder, began)
    resume.require_same(folder, SOURCE_HASHES, "H100")


def test_other_gpus_and_another_time_limit_are_those_of_the_command(tmp_path: Path) -> None:
    begun(tmp_path)
    given = Settings("suite", profiles=str(tmp_path), gpus="1").with_time_limit(300)
    _, settings = resume.unfinished(given, silent)
    assert settings.gpus == "1" and settings.shapes == ("small",)
    assert settings.check.limits.time_limit == settings.profile.limits.time_limit == 300


@pytest.mark.parametrize(
    "text",
    [
        "", "{", "[]", "[" * 50_000, "null", '{"settings": {}}', '{"source_hashes": {}}',
        '{"settings": [], "source_hashes": {}}',
        '{"settings": {"suite": "suite"}, "source_hashes": []}', '{"settings": {"suite": 7}, "source_hashes": {}}',
        '{"settings": {"suite": "suite", "tomorrow": 1}, "source_hashes": {}}',
        '{"settings": {"suite": "s"}, "source_hashes": {"x": 1}}',
    ],
)  # fmt: skip
def test_what_is_torn_is_passed_over_and_said(tmp_path: Path, text: str) -> None:  # item 18
    folder = begun(tmp_path)
    (folder / "settings.json").write_text(text)
    settings = Settings("suite", profiles=str(tmp_path))
    with pytest.raises(UsageError, match=r"settings\.json: expected the settings that the run began with"):
        resume.unfinished(settings, silent)
    with pytest.raises(UsageError, match="record a new run"):
        resume.require_same(folder, SOURCE_HASHES, "H100")
    older = begun(tmp_path, "20250102T030405Z-0001")
    assert resume.unfinished(settings, silent)[0] == older


def test_other_sources_are_refused(tmp_path: Path) -> None:
    folder = begun(tmp_path)
    assert json.loads((folder / "settings.json").read_text())["source_hashes"] == SOURCE_HASHES
    with pytest.raises(UsageError, match="the sources changed"):
        resume.require_same(folder, {"fast sm_80": "other"}, "H100")
    for source_hashes, gpu in (
        ({**SOURCE_HASHES, "fast sm_90a": "abc"}, "H100"),
        (SOURCE_HASHES, "H200"),
        ({}, "H100"),
    ):
        with pytest.raises(UsageError, match=r"GPU, archs and variants that .* \(H100, sm_80\), found others \(H"):
            resume.require_same(folder, source_hashes, gpu)
