"""A judgement with a failure of each kind, for the formats of the gate."""

from __future__ import annotations

from datetime import date
from pathlib import Path
from typing import Any

from flashcore.gate import judge
from flashcore.gate.judge import Judgement
from flashcore.gate.locate import Places
from flashcore.model.causes import SourceLine
from flashcore.model.record import Record
from flashcore.model.suite import Suite
from tests import factory

TODAY = date(2026, 6, 1)
SOURCE = """#include <common.cuh>
// fast_kernel( of a comment is no definition
extern "C" __global__ void __launch_bounds__(256)
    fast_kernel(const float* x) {
}
void launch() { fast_kernel<<<1, 1>>>(nullptr); }
"""
NASTY = 'a]]> & <b> "c" | 100 %, \x1b[31mred\x1b[0m \x00 \ud800 日本\nsecond line'


def suite(root: Path, **changes: Any) -> Suite:
    root.mkdir(parents=True, exist_ok=True)
    (root / ".git").mkdir(exist_ok=True)
    folder = root / "my kernels"
    folder.mkdir(exist_ok=True)
    (folder / "fast.cu").write_text(SOURCE)
    (folder / "common.cuh").write_text("\n\n__global__ void slow_kernel(\nint) {}\n")
    (folder / "slow.cu").write_text('#include "common.cuh"\n')
    (folder / "suite.toml").write_text('name = "x"\n\n[variant.split]\nsource = "split.cu"\n')
    budgets = [
        factory.budget("registers", maximum=128),
        factory.budget("spill_store_bytes", maximum=0),
        factory.budget("theoretical_occupancy", minimum=10),
        factory.goal("tensor_active", minimum=60),
    ]
    return factory.suite(budgets=budgets, root=str(folder), **changes)


def troubled(root: Path) -> Record:
    """A record with a failure of each kind, a waived miss, a gap, an open goal and hostile texts."""
    waiver = factory.waiver("registers_limit", 160, variants=("slow",), reason=f"known: {NASTY}", expires="2027-01-01")
    facts = [
        factory.fact("registers", 140, "fast", arch="sm_89", kernel="fast_kernel"),
        factory.fact("registers", 150, "slow", arch="sm_89", kernel="slow_kernel"),
        factory.fact("spill_store_bytes", 8, "fast", arch="sm_80", kernel="fast_kernel"),
        factory.fact("spill_store_bytes", 8, "fast", arch="sm_89", kernel="fast_kernel"),
        factory.site(SourceLine("common.cuh", 3)),
        factory.fact("registers", None, "split", arch="sm_90a", kernel="split_kernel", detail=f"no cubin: {NASTY}"),
    ]
    made = suite(root, waivers=[waiver])
    failed = factory.artifact("split", "sm_90a", "failed", f"split.cu(7): error: {NASTY}")
    return factory.record(made, facts, artifacts=(*factory.artifacts(made)[:-1], failed))


def judged(record: Record) -> Judgement:
    return judge.judge(record, today=TODAY)


def places(record: Record) -> Places:
    """Relative to the folder that the suite's folder lies in."""
    return Places(record, Path(record.suite.root).parent)


#: Kinds of :func:`example`.
KINDS = ("troubled", "clean", "bare")


def example(kind: str, root: Path) -> Record:
    """A record for the schemas."""
    if kind == "troubled":
        return troubled(root)
    made = suite(root)
    return factory.record(made) if kind == "clean" else factory.bare_record(made)
