"""Which GPUs run a file's code."""

from __future__ import annotations

from pathlib import Path

import pytest

from flashcore.cli.main import main
from flashcore.errors import Exit, UsageError
from flashcore.features.audit.inventory import inventory
from flashcore.features.audit.record import facts_of_gpus, gpus_of, runs
from flashcore.model.cause import Cause
from tests.support.fatbins import CUBINS, SPECIFIC, both, entry, fatbin


@pytest.mark.parametrize(
    ("arch", "machine_code", "ptx"),
    [
        ("sm_80", {80, 86, 89}, {80, 86, 87, 89, 90, 100, 101, 103, 110, 120}),
        ("sm_89", {89}, {89, 90, 100, 101, 103, 110, 120}),
        ("sm_90", {90}, {90, 100, 101, 103, 110, 120}),
        ("sm_90a", {90}, {90}),
        ("sm_100", {100, 103}, {100, 101, 103, 110, 120}),
        ("sm_100a", {100}, {100}),
        ("sm_100f", {100, 103}, {100, 103}),
        ("sm_103f", {103}, {103}),
        ("sm_87", {87}, {87, 89, 90, 100, 101, 103, 110, 120}),
        ("sm_53", set(), {75, 80, 86, 87, 89, 90, 100, 101, 103, 110, 120}),
        ("sm_101", {101}, {101, 103, 110, 120}),
        ("sm_110f", {110}, {110}),
    ],
)
def test_code_runs_by_the_compatibility_rules(arch: str, machine_code: set[int], ptx: set[int]) -> None:
    gpus = (75, 80, 86, 87, 89, 90, 100, 101, 103, 110, 120)
    assert {gpu for gpu in gpus if runs(arch, gpu)} == machine_code
    assert {gpu for gpu in gpus if runs(arch, gpu, ptx=True)} == ptx


def test_a_gpu_is_named_by_its_device_or_its_arch() -> None:
    assert gpus_of(["h200", "L4", "a100", "sm_75", "B200"]) == {
        "h200": 90, "L4": 89, "a100": 80, "sm_75": 75, "B200": 100
    }  # fmt: skip
    with pytest.raises(UsageError, match=r"l4, .*h200.* found 'h300'"):
        gpus_of(["h300"])


def test_each_gpu_has_its_sentence(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "k.fatbin").write_bytes(both())
    assert main(["audit", str(tmp_path / "k.fatbin"), "--for", "h200,l4,b200,sm_75"]) == Exit.OK
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) == 2 + 10 + 2 + 4, "each kernel has a row, a GPU none"
    assert lines[-4:] == [
        "k.fatbin on h200: machine code of 5 of 5 kernels (sm_90a)",
        "k.fatbin on l4: machine code of 5 of 5 kernels (sm_80)",
        "k.fatbin on b200: no sm_100 code: compiled at first use, from PTX for sm_90",
        "k.fatbin on sm_75: cannot run: not supported",
    ]


def test_code_that_cannot_be_read_leaves_it_unmeasured(tmp_path: Path) -> None:
    content = fatbin(entry(CUBINS["sm_90a"], 90, SPECIFIC), entry(b"\x7fELF damaged", 80))
    (tmp_path / "k.fatbin").write_bytes(content)
    h200, l4 = facts_of_gpus(inventory([tmp_path / "k.fatbin"]), {"h200": 90, "l4": 89})
    assert (h200.value, l4.value) == (5, None)
    assert isinstance(l4.detail, Cause)
