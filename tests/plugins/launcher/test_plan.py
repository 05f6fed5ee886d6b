"""Plans as JSON that nobody vouches for: their form, and their launches against the cubins."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from flashcore.errors import FlashcoreError, ManifestError
from flashcore.plugins.launcher import plan
from tests.conftest import ROOT, TESTS

#: `shared` takes three addresses, `spills` two.
LAUNCH = {"cubin": "c", "kernel": "shared", "grid": [1, 1, 1], "block": [128, 1, 1]}
ADDRESSES = [[{"tensor": "x"}], [{"tensor": "x", "offset": 8}], [{"type": "i64", "value": 0}]]


@pytest.fixture
def write(tmp_path: Path) -> Callable[..., Path]:
    shutil.copy(TESTS / "data" / "static_sm_90a.cubin", tmp_path / "c.cubin")

    def write(**changed: Any) -> Path:
        tensors = {"x": {"dtype": "float32", "sizes": [2, 3]}}
        whole = {
            "version": 1,
            "cubins": {"c": "c.cubin"},
            "tensors": tensors,
            "launches": [{**LAUNCH, "arguments": ADDRESSES}],
        }
        (tmp_path / "plan.json").write_text(json.dumps({**whole, **changed}))
        return tmp_path / "plan.json"

    return write


def test_a_plan_becomes_words(write: Callable[..., Path]) -> None:
    path = write()
    words = plan.read(path).words(path.parent).split()
    assert words[:12] == ["flashcore-plan", "1", "1", "c", "c.cubin", "1", "x", "float32", "24", "input", "byte", "255"]
    zero = "00" * 8
    assert words[12:] == [
        *("1", "c", "shared", "1", "1", "1", "128", "1", "1", "1", "1", "1", "0", "0", "0", "3"),
        *("8", zero, "1", "address", "0", "0", "0"),
        *("8", zero, "1", "address", "0", "0", "8"),
        *("8", zero, "0", "end"),
    ]


def test_each_mistake_of_form_is_named(write: Callable[..., Path]) -> None:
    path = write(
        version=2,
        cubins={"c": "../c.cubin"},
        tensors={"x y": {"dtype": "float32", "sizes": [1]}, "y": {"dtype": "complex64", "sizes": [2.5], "more": 1}},
        launches=[{**LAUNCH, "grid": [1, 1], "shared": "1", "arguments": [[{"tensor": 3}], {}]}],
    )
    with pytest.raises(ManifestError) as caught:
        plan.read(path)
    for place in (
        *("version", "cubins.c", "tensors.x y", "tensors.y.dtype", "tensors.y.sizes[0]", "tensors.y.more"),
        *("launches[0].grid", "launches[0].shared", "launches[0].arguments[0][0].tensor", "launches[0].arguments[1]"),
    ):
        assert any(place in mistake for mistake in caught.value.mistakes), (place, caught.value.mistakes)


@pytest.mark.parametrize("text", ["", "[" * 5000, "{", "[1]", '"x"', "null", '{"version": 1e999}', "\xff\xfe"])
def test_what_is_no_plan_is_refused(write: Callable[..., Path], text: str) -> None:
    path = write()
    path.write_bytes(text.encode("latin-1"))
    with pytest.raises(ManifestError):
        plan.read(path)


@pytest.mark.parametrize(
    ("launch", "message"),
    [
        ({"kernel": "none"}, "expected a kernel of its cubin, found none of c"),
        ({"cubin": "d"}, "expected a kernel of its cubin, found shared of d"),
        ({"arguments": ADDRESSES[:2]}, "expected 3 arguments of shared, found 2"),
        ({"arguments": [*ADDRESSES, ADDRESSES[0]]}, "expected 3 arguments of shared, found 4"),
        (
            {"arguments": [*ADDRESSES[:2], [{"type": "i32", "value": 0}]]},
            r"arguments\[2\]: expected 8 bytes: found 4 at 0",
        ),
        ({"arguments": [*ADDRESSES[:2], [{"type": "i64", "value": 1 << 63}]]}, "out of range"),
        ({"arguments": [*ADDRESSES[:2], [{"type": "i64", "value": 0.5}]]}, "not an integer"),
        ({"arguments": [*ADDRESSES[:2], [{"at": 1, "tensor": "x"}]]}, "found 8 at 1"),
        ({"arguments": [*ADDRESSES[:2], [{"tensor": "z"}]]}, "found no tensor z"),
        ({"arguments": [*ADDRESSES[:2], [{}]]}, "expected one of tensor, hex, type"),
        ({"arguments": [*ADDRESSES[:2], [{"tensor": "x", "hex": "00"}]]}, "expected one of tensor, hex, type"),
    ],
)
def test_a_launch_is_held_to_its_kernel(write: Callable[..., Path], launch: dict[str, Any], message: str) -> None:
    path = write(launches=[{**LAUNCH, "arguments": ADDRESSES, **launch}])
    with pytest.raises(FlashcoreError, match=message) as caught:
        plan.read(path).words(path.parent)
    assert "launches[0]" in str(caught.value)


def test_a_damaged_cubin_is_refused(write: Callable[..., Path]) -> None:
    path = write()
    (path.parent / "c.cubin").write_bytes(b"\x7fELF\x02 and no more")
    with pytest.raises(FlashcoreError, match="expected a 64-bit CUDA ELF file"):
        plan.read(path).words(path.parent)


def test_a_maps_lists_are_of_one_length(write: Callable[..., Path]) -> None:
    of = {"dtype": "float32", "sizes": [2, 2], "strides": [16, 16], "box": [2, 2], "steps": [1, 1]}
    path = write(launches=[{**LAUNCH, "arguments": [[{"tensor": "x", "map": of}], *ADDRESSES[1:]]}])
    with pytest.raises(FlashcoreError, match=r"launches\[0\]"):
        plan.read(path).words(path.parent)


def test_the_documents_plan_has_the_right_form(tmp_path: Path) -> None:
    text = (ROOT / "docs" / "reference" / "launcher.md").read_text(encoding="utf-8")
    (tmp_path / "plan.json").write_text(text.partition("```json\n")[2].partition("```")[0])
    assert plan.read(tmp_path / "plan.json").launches[0].kernel == "softmax_kernel"
