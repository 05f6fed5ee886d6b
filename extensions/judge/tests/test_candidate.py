"""Candidates as data: files, manifests, formulas."""

from __future__ import annotations

import contextlib
import json
import os
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from extensions.judge.tests.conftest import LAUNCH, SUITE, Judge, machine, made, written
from flashcore.errors import CapabilityError, UsageError
from flashcore.pipeline import plugins
from flashcore.suites.load import load
from flashcore_judge.candidate import filled, sealed
from flashcore_judge.judging import judge_all
from flashcore_judge.preparing import begun, prepared
from flashcore_judge.verdict import untrusted, write

__all__ = ["machine", "made"]


def test_a_seal_is_of_names_and_contents(tmp_path: Path) -> None:
    first = sealed(written(tmp_path / "a")).digest
    assert sealed(written(tmp_path / "b")).digest == first
    (tmp_path / "b" / "more").write_text("")
    other = sealed(tmp_path / "b").digest
    assert other != first
    (tmp_path / "b" / "more").rename(tmp_path / "b" / "most")
    assert sealed(tmp_path / "b").digest not in (first, other)


def test_a_name_that_is_no_text_ends_no_batch(forked: None, tmp_path: Path) -> None:
    plugins.load()
    folders = [written(tmp_path / os.fsdecode(b"c\xff"), tolerance="none"), written(tmp_path / "d", tolerance="none")]
    made = dict(judge_all(load(SUITE), folders, lambda _: None))
    verdicts = [made[folder] for folder in folders]
    assert [one.status for one in verdicts] == ["rejected", "rejected"]
    for one in verdicts:
        assert write(one, tmp_path / "v").read_text().isascii()


OTHERS: tuple[Callable[[Path], object], ...] = (
    lambda path: path.symlink_to("/etc/passwd"),
    lambda path: path.symlink_to("/etc", target_is_directory=True),
    lambda path: os.mkfifo(path),
    lambda path: os.truncate(os.open(path, os.O_CREAT | os.O_WRONLY), 65 << 20),
)


@pytest.mark.parametrize("make", OTHERS)
def test_links_pipes_and_large_files_are_refused(tmp_path: Path, make: Callable[[Path], object]) -> None:
    make(written(tmp_path / "c") / "other")
    with pytest.raises(UsageError, match="expected at most 256 plain files of 64 MiB in all, found other"):
        sealed(tmp_path / "c")


def test_a_file_that_becomes_a_link_while_it_is_sealed_is_not_followed(tmp_path: Path) -> None:
    folder, secret, stop = written(tmp_path / "c"), tmp_path / "secret", threading.Event()
    secret.write_text("secret")
    copies = list[bytes]()

    def swap() -> None:
        while not stop.is_set():
            for name, make in (("f", Path.touch), ("l", lambda path: path.symlink_to(secret))):
                make(tmp_path / name)
                (tmp_path / name).rename(folder / "other")

    swapping = threading.Thread(target=swap)
    swapping.start()
    try:
        for _ in range(300):
            with contextlib.suppress(UsageError):
                copies.append(sealed(folder).files.get("other", b""))
    finally:
        stop.set()
        swapping.join()
    assert copies and not any(copies)


@pytest.mark.parametrize(
    ("text", "value"), [("cdiv(R, 4) * 2", 20), ("-R + max(1, R % 7)", -35), ("pow2(R)", 64), ("min(R // 5, 3)", 3)]
)
def test_a_formula_has_a_value(text: str, value: int) -> None:
    assert filled([f"={text}"], {"R": 37}) == [value]


@pytest.mark.parametrize(
    "text",
    [
        "__import__('os')",
        "R.real",
        "9 ** 9 ** 9",
        "R[0]",
        "S",
        "1 // 0",
        "'a' * 9",
        "True",
        "[R for R in R]",
        "R <<",
        "(" * 150,
        "-" * 199 + "1" + "+" * 200,
        "9" * 30,
        "1e400",
        "min(key=R)",
        "max()",
        "min",
        "min(R, R) == R",
        "(0 or (1,)) * 99999999999",
        "min((R, R)) * 99999999999",
        "max(R, min)(R)",
        "R * 1" + "0" * 200,
        "pow2(R, R)",
        "min(*R)",
        "R if R else R",
    ],
)
def test_anything_else_is_no_formula(text: str) -> None:
    with pytest.raises(UsageError, match="expected a formula"):
        filled(f"={text}", {"R": 37})


def test_typed_numbers_are_bytes() -> None:
    assert filled([{"int32": "=-R"}, {"float32": 0.5}, {"tensor": "x"}], {"R": 2}) == [
        {"hex": "feffffff"},
        {"hex": "0000003f"},
        {"tensor": "x"},
    ]
    with pytest.raises(UsageError, match="a number of type int32"):
        filled({"int32": 1 << 40}, {})


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"launches": [{**LAUNCH, "programmatic": True}]}, "plan: launches.0.programmatic: Input should be False"),
        ({"launches": [{**LAUNCH, "cubin": "../k.cubin"}]}, "launches.0.cubin"),
        ({"launches": [{**LAUNCH, "cubin": ["k.cubin"]}]}, "launches.0.cubin"),
        ({"launches": [{**LAUNCH, "cubin": "x.3.raw"}]}, "plan: launches.0.cubin: String should match"),
        (
            {"launches": [{**LAUNCH, "cubin": "none.cubin"}]},
            "none.cubin: expected a cubin of sm_90a: no such file",
        ),
        (
            {"launches": {"small": [{"launches": [LAUNCH]}]}, "shapes": ["small", "odd"]},
            "expected some on odd, found none",
        ),
        ({"launches": [{**LAUNCH, "kernel": "a b"}]}, "launches.0.kernel"),
        ({"launches": [{**LAUNCH, "grid": ["=N / 3", 1, 1]}]}, "expected a formula"),
        ({"launches": [{**LAUNCH, "more": 1}]}, "launches.0.more"),
        ({"launches": ["k"]}, "plan: launches.0"),
        ({"launches": [{**LAUNCH, "kernel": "keep_copy"}]}, "k.cubin: it has no kernel keep_copy"),
        ({"launches": [], "variant": {}}, "either launches"),
        ({"launches": [LAUNCH] * 1001}, "at most 1000 on a shape"),
        ({"launches": [{**LAUNCH, "arguments": [[{"hex": "00" * (1 << 20)}]]}]}, "1 MiB"),
        ({"workspaces": {"w": "x"}}, "workspaces: sizes.0"),
        ({"workspaces": {"a": 1 << 32, "b": "=4294967296 + 1"}}, "at most 8192 MiB"),
        ({"workspaces": {"a": 1 << 34, "b": -(1 << 34)}}, "workspaces"),
        ({"workspaces": {"y": 8}}, "y is a tensor of the problem"),
        ({"tolerance": "loose"}, "tolerance: expected one of exact"),
        ({"roof": "fp4_tensor"}, "roof: expected one of fp32"),
        ({"problem": "other"}, "expected a problem of"),
        ({"shapes": ["none"]}, "some of its shapes"),
        ({"shapes": ["small"] * 1001}, "shapes"),
        ({"extra": 1}, "extra"),
        ({"name": "x" * (8 << 20)}, "more than 8 MiB"),
    ],
)
def test_a_wrong_candidate_is_rejected_with_its_reason(judge: Judge, changes: dict[str, Any], reason: str) -> None:
    verdict = judge(**changes)
    assert verdict.status == "rejected" and reason in verdict.reasons[0]


def test_launches_are_read_within_the_limit(made: Path, tmp_path: Path) -> None:
    folder = written(tmp_path / "c", made / "k.cubin")
    suite = load(SUITE)
    with pytest.raises(CapabilityError, match="longer than its limit"):
        prepared(begun(suite, folder), suite, "sm_90a", folder, tmp_path / "p", seconds=-1.0)


def test_text_of_candidates_is_on_one_line_and_short(judge: Judge) -> None:
    name = "\x1b[2J\n::error::accepted\u202e" + "x" * 500
    assert untrusted(name) == judge(name=name, tolerance="none").untrusted["name"]
    assert len(untrusted(name)) == 120 and not set(untrusted(name)) & set("\n\x1b\u202e")
    assert untrusted("a\udcff\ud800b").encode() == b"a??b"  # what a file's name and JSON can hold, and no terminal
    assert json.dumps(judge(problem=name).reasons).isascii()
