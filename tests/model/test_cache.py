"""A cached value equals the original, and is used only while its inputs are unchanged."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from flashcore.errors import ManifestError
from flashcore.model import cache
from flashcore.model.suite import Cuda
from flashcore.suites import load, resolve
from tests.conftest import ROOT, TOY


@pytest.fixture
def toy(tmp_path: Path) -> Path:
    """A copy of the toy suite."""
    return Path(shutil.copytree(TOY, tmp_path / "suite", ignore=shutil.ignore_patterns("__pycache__")))


@pytest.mark.parametrize("root", [TOY, ROOT / "kernels" / "attention", ROOT / "examples" / "row_softmax"])
def test_a_remembered_suite_is_the_suite(root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    result = load.load(root)
    assert load.load(root, tmp_path) == result

    def no(*_: object) -> None:
        raise AssertionError("asked again")

    monkeypatch.setattr(resolve, "resolve", no)
    again = load.load(root, tmp_path)
    assert again == result
    assert repr(again) == repr(result)  # 1 and 1.0 and True are equal, but not the same flag


def test_a_changed_manifest_is_read_again(toy: Path, tmp_path: Path) -> None:
    load.load(toy, tmp_path)
    manifest = toy / load.MANIFEST
    manifest.write_text(manifest.read_text(encoding="utf-8") + "\nnonsense = 1\n", encoding="utf-8")
    with pytest.raises(ManifestError):
        load.load(toy, tmp_path)


def test_a_source_that_went_away_is_a_mistake_again(toy: Path, tmp_path: Path) -> None:
    loaded = load.load(toy, tmp_path)
    source = next(v.kind.file for v in loaded.variants.values() if isinstance(v.kind, Cuda))
    (toy / source).unlink()
    with pytest.raises(ManifestError, match="a file of the suite"):
        load.load(toy, tmp_path)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "[",
        "null",
        "{}",
        '["key", 1]',
        '{"key": "key"}',
        r'{"key": "key", "value": {"\u0000": "Path"}}',
        r'{"key": "key", "value": {"\u0000": "Suite", "name": "a"}}',
    ],
)
def test_what_is_damaged_counts_as_unknown(tmp_path: Path, text: str) -> None:
    (tmp_path / "name.json").write_text(text, encoding="utf-8")
    assert cache.recall(tmp_path, "name", "key") is None


def test_only_the_models_own_classes_are_made(tmp_path: Path) -> None:
    for name in ("Enum", "Mapping", "dataclass", "Any"):
        (tmp_path / "name.json").write_text(
            json.dumps({"key": "key", "value": {"\0": name, "value": "x"}}), encoding="utf-8"
        )
        assert cache.recall(tmp_path, "name", "key") is None


def test_a_folder_that_cannot_be_written_is_no_error(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("", encoding="utf-8")
    cache.keep(tmp_path / "file", "name", "key", 1)
    assert cache.recall(tmp_path / "file", "name", "key") is None
