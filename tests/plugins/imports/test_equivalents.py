"""Counts that a report lacks are computed exactly from others, or not at all."""

from __future__ import annotations

import pytest

from flashcore.plugins.imports.equivalents import reading

FP8 = "sm__ops_path_tensor_src_fp8"


@pytest.mark.parametrize(
    ("metric", "others", "value"),
    [
        ("smsp__inst_executed.sum", {"inst_executed": 7.0}, 7),
        ("smsp__inst_executed.sum", {}, None),
        ("smsp__inst_executed_op_local_ld.sum", {"smsp__sass_inst_executed_op_local_ld.sum": 0.0}, 0),
        (f"{FP8}.sum", {f"{FP8}_sparsity_off.sum": 0.0, f"{FP8}_sparsity_on.sum": 0.0}, 0),
        (f"{FP8}.sum", {f"{FP8}_sparsity_off.sum": 4.0, f"{FP8}_sparsity_on.sum": 0.0}, None),
        (f"{FP8}.sum", {f"{FP8}_sparsity_off.sum": 0.0}, None),
        ("lts__t_bytes.sum", {"lts__t_sectors.sum": 3.0}, 96),
        ("l1tex__t_bytes.sum", {"lts__t_sectors.sum": 3.0}, None),
        ("sm__x.sum", {"sm__x.sum.per_cycle_elapsed": 0.3, "sm__cycles_elapsed.avg": 10.0}, 3),
        ("sm__x.sum", {"sm__x.sum.per_cycle_elapsed": 0.31, "sm__cycles_elapsed.avg": 10.0}, None),
        ("sm__x.sum", {"sm__x.sum.per_cycle_elapsed": 0.30001, "sm__cycles_elapsed.avg": 1e5}, 30001),
        ("sm__x.sum", {"sm__x.sum.per_cycle_elapsed": 0.3, "lts__cycles_elapsed.avg": 10.0}, None),
        ("sm__x.sum", {"sm__cycles_elapsed.avg": 10.0}, None),
        ("sm__x.avg", {"sm__x.avg.per_cycle_elapsed": 0.3, "sm__cycles_elapsed.avg": 10.0}, None),
    ],
)
def test_a_count_is_made_of_its_equivalents(metric: str, others: dict[str, float], value: float | None) -> None:
    made = reading(metric, others.get)
    assert (made and made.value) == value
    assert made is None or all(name.partition(".per")[0] in str(made.detail) for name in others if name[:3] != "sm_")
