"""The calls of one variant, without a GPU."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from flashcore.errors import FlashcoreError
from flashcore.machine.toolchain import Nvcc
from flashcore.model.settings import Settings
from flashcore.pipeline.variant_calls import variant_calls
from tests.conftest import TOY


def test_one_variant_is_compiled_and_called_on_the_selected_shapes(compiler: Nvcc, tmp_path: Path) -> None:
    settings = Settings(str(TOY), build=str(tmp_path), variants=("two_steps",), shapes=("small",), upto=None)
    artifact, (case,) = variant_calls(settings, "two_steps", "sm_90a")
    assert (artifact.variant, artifact.arch, artifact.status) == ("two_steps", "sm_90a", "ok")
    assert (case.name, case.launches, case.params["N"]) == ("two_steps/small", 2, 4096)


def test_a_variant_that_does_not_compile_is_an_error(compiler: Nvcc, tmp_path: Path) -> None:
    suite = Path(shutil.copytree(TOY, tmp_path / "suite"))
    (suite / "scale.cu").write_text("int x = ;")
    settings = Settings(str(suite), build=str(tmp_path / "build"), variants=("plain",), upto=None)
    with pytest.raises(FlashcoreError, match=r"it does not compile: .*expected an expression"):
        variant_calls(settings, "plain", "sm_90a")
