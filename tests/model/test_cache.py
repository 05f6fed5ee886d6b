"""What is remembered is exactly what was found, and only while nothing it rests on has changed."""

from __future__ import annotations

import json
import os
import shutil
import stat
import sys
from pathlib import Path

import pytest

from flashcore.errors import ManifestError
from flashcore.machine import toolchain
from flashcore.manifest import load, resolve
from flashcore.model import cache
from tests.conftest import ROOT, TOY


@pytest.fixture
def toy(tmp_path: Path) -> Path:
    """A copy of the toy suite."""
    return Path(shutil.copytree(TOY, tmp_path / "suite", ignore=shutil.ignore_patterns("__pycache__")))


@pytest.mark.parametrize("root", [TOY, ROOT / "kernels" / "attention", ROOT / "examples" / "row_softmax"])
def test_a_remembered_suite_is_the_suite(root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    if not root.is_dir():
        pytest.skip(f"no {root.name}")
    found = load.load(root)
    assert load.load(root, tmp_path) == found

    def no(*_: object) -> None:
        raise AssertionError("asked again")

    monkeypatch.setattr(resolve, "Builder", no)
    again = load.load(root, tmp_path)
    assert again == found
    assert repr(again) == repr(found)  # 1 and 1.0 and True are equal, but not the same flag


def test_a_changed_manifest_is_read_again(toy: Path, tmp_path: Path) -> None:
    load.load(toy, tmp_path)
    manifest = toy / load.MANIFEST
    manifest.write_text(manifest.read_text(encoding="utf-8") + "\nnonsense = 1\n", encoding="utf-8")
    with pytest.raises(ManifestError):
        load.load(toy, tmp_path)


def test_a_source_that_went_away_is_a_mistake_again(toy: Path, tmp_path: Path) -> None:
    loaded = load.load(toy, tmp_path)
    source = next(v.source for v in loaded.variants.values() if v.source)
    (toy / source).unlink()
    with pytest.raises(ManifestError, match="a file of the suite"):
        load.load(toy, tmp_path)


@pytest.mark.parametrize("text", ["", "[", "null", "{}", '["key"]', '["key", ["Path", "x"]]', '["key", ["Suite", 1]]'])
def test_what_is_damaged_counts_as_unknown(tmp_path: Path, text: str) -> None:
    (tmp_path / "name.json").write_text(text, encoding="utf-8")
    assert cache.recall(tmp_path, "name", "key") is None


def test_only_the_models_own_classes_are_made(tmp_path: Path) -> None:
    for name in ("Enum", "Mapping", "dataclass", "Any"):
        (tmp_path / "name.json").write_text(json.dumps(["key", [name, "x"]]), encoding="utf-8")
        assert cache.recall(tmp_path, "name", "key") is None


def test_a_folder_that_cannot_be_written_is_no_error(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("", encoding="utf-8")
    cache.keep(tmp_path / "file", "name", "key", 1)
    assert cache.recall(tmp_path / "file", "name", "key") is None


# --- the compiler --------------------------------------------------------------------------------


def compiler(path: Path, version: str, counter: Path) -> None:
    """A script that answers as nvcc does, and counts how often it is asked."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(
        f"#!{sys.executable}\nopen({str(counter)!r}, 'a').write('x')\nprint('release 13.0, V{version}')\n",
        encoding="utf-8",
    )
    path.chmod(path.stat().st_mode | stat.S_IXUSR)


def test_a_script_that_may_call_any_compiler_is_asked_each_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    counter, path = tmp_path / "asked", tmp_path / "toolkit" / "bin" / "nvcc"
    compiler(path, "13.0.88", counter)
    (tmp_path / "toolkit" / "include").mkdir()
    (tmp_path / "toolkit" / "include" / "cuda_runtime.h").write_text("", encoding="utf-8")
    monkeypatch.setenv("NVCC", str(path))
    for times in (1, 2):
        toolchain._nvcc.cache_clear()
        assert toolchain.find_nvcc(tmp_path / "known").version == "13.0.88"
        assert counter.read_text() == times * "x"
    toolchain._nvcc.cache_clear()


def test_a_program_is_asked_once_until_it_changes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    counter, path = tmp_path / "asked", tmp_path / "toolkit" / "bin" / "nvcc"
    compiler(path, "13.0.88", counter)
    (tmp_path / "toolkit" / "include").mkdir()
    (tmp_path / "toolkit" / "include" / "cuda_runtime.h").write_text("", encoding="utf-8")
    monkeypatch.setenv("NVCC", str(path))
    monkeypatch.setattr(toolchain, "_program", lambda p: p)  # as if it were no script
    for _ in range(3):
        toolchain._nvcc.cache_clear()
        assert toolchain.find_nvcc(tmp_path / "known").version == "13.0.88"
    assert counter.read_text() == "x"
    compiler(path, "13.1.99", counter)
    os.utime(path, ns=(1, 1))
    toolchain._nvcc.cache_clear()
    assert toolchain.find_nvcc(tmp_path / "known").version == "13.1.99"
    toolchain._nvcc.cache_clear()


def test_a_script_that_only_calls_a_program_is_followed(tmp_path: Path) -> None:
    program, script = Path(sys.executable).resolve(), tmp_path / "nvcc"
    for text, found in (
        (f'#!/bin/sh\nexec {program} "$@"\n', program),
        (f'#!/bin/sh\nexport X=1\nexec {program} "$@"\n', None),
        ('#!/bin/sh\nexec /nowhere/nvcc "$@"\n', None),
        (f'#!/bin/sh\nexec {script} "$@"\n', None),
    ):
        script.write_text(text, encoding="utf-8")
        assert toolchain._program(script) == found
    assert toolchain._program(program) == program
