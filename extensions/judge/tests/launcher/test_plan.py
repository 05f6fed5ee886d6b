"""Plans as JSON that nobody vouches for: their form, and the words that the launcher's program reads."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from flashcore.errors import ManifestError
from flashcore_judge.launcher import plan
from tests.conftest import ROOT

MAP = {"dtype": "float32", "sizes": [3, 2], "strides": [16], "box": [3, 1], "steps": [1, 1], "swizzle": "128B"}
LAUNCH = {
    "cubin": "c.cubin",
    "kernel": "k",
    "grid": [1, 2, 3],
    "block": [128, 1, 1],
    "cooperative": True,
    "arguments": [[{"tensor": "x", "offset": 8}], [{"hex": "000a"}, {"at": 64, "tensor": "x", "map": MAP}]],
}


@pytest.fixture
def write(tmp_path: Path) -> Callable[..., Path]:
    def write(**changed: Any) -> Path:
        whole = {"version": 1, "tensors": {"x": {"dtype": "float32", "sizes": [2, 3]}}, "launches": [LAUNCH]}
        (tmp_path / "plan.json").write_text(json.dumps({**whole, **changed}))
        return tmp_path / "plan.json"

    return write


def test_a_plan_becomes_words(write: Callable[..., Path]) -> None:
    tensors = {"x": {"dtype": "float32", "sizes": [2, 3]}, "y": {"dtype": "uint8", "sizes": []}}
    words = plan.read(write(tensors=tensors)).words().split()
    assert words == [
        *("flashcore-plan", "1", "2"),
        *("x", "float32", "2", "2", "3", "input"),
        *("y", "uint8", "0", "input"),
        *("1", "c.cubin", "k", "3", "1", "2", "3", "3", "128", "1", "1", "3", "1", "1", "1", "0", "False", "True", "2"),
        *("1", "0", "x", "8", "-", "-"),
        *("2", "0", "-", "0", "-", "000a"),
        *(
            "64",
            "x",
            "0",
            "float32",
            "2",
            "3",
            "2",
            "1",
            "16",
            "2",
            "3",
            "1",
            "2",
            "1",
            "1",
            "128B",
            "none",
            "zero",
            "-",
        ),
        "end",
    ]


def test_a_plan_is_the_same_after_its_json(write: Callable[..., Path], tmp_path: Path) -> None:
    first = plan.read(write())
    (tmp_path / "again.json").write_text(first.model_dump_json())
    assert plan.read(tmp_path / "again.json").words() == first.words()


def test_each_mistake_of_form_is_named(write: Callable[..., Path]) -> None:
    arguments = [[{"tensor": 3}], {}, [{"hex": "0"}], [{"tensor": "-"}]]
    path = write(
        version=2,
        tensors={"x y": {"dtype": "float32", "sizes": [1]}, "y": {"dtype": "complex64", "sizes": [2.5], "more": 1}},
        launches=[{**LAUNCH, "cubin": "../c", "grid": [1, 1], "dynamic_smem": "1", "arguments": arguments}],
    )
    with pytest.raises(ManifestError) as caught:
        plan.read(path)
    places = (
        *("version", "tensors.x y", "tensors.y.dtype", "tensors.y.sizes[0]", "tensors.y.more"),
        *("launches[0].cubin", "launches[0].grid", "launches[0].dynamic_smem", "launches[0].arguments[0][0].tensor"),
        *("launches[0].arguments[1]", "launches[0].arguments[2][0].hex", "launches[0].arguments[3][0].tensor"),
    )
    assert [mistake.partition(":")[0] for mistake in caught.value.mistakes] == [*places]


@pytest.mark.parametrize("text", ["", "[" * 5000, "{", "[1]", '"x"', "null", '{"version": 1e999}', "\xff\xfe"])
def test_what_is_no_plan_is_refused(write: Callable[..., Path], text: str) -> None:
    path = write()
    path.write_bytes(text.encode("latin-1"))
    with pytest.raises(ManifestError):
        plan.read(path)


def test_the_documents_plan_has_the_right_form(tmp_path: Path) -> None:
    text = (ROOT / "extensions" / "judge" / "launcher.md").read_text(encoding="utf-8")
    (tmp_path / "plan.json").write_text(text.partition("```json\n")[2].partition("```")[0])
    assert plan.read(tmp_path / "plan.json").launches[0].kernel == "softmax_kernel"
