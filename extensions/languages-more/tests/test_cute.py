"""What CuTe DSL's host code launches, run without a GPU."""

from __future__ import annotations

import importlib.util
from pathlib import Path

import pytest

from flashcore.model.causes import PlanRefused
from flashcore.suites.load import load
from flashcore_languages_more.cute import LANGUAGE
from tests.support.traced import ARCH, MANIFEST, VARIANT

COPY = """import cutlass
from cutlass import cute
from cutlass.cute.nvgpu import cpasync


@cute.kernel
def copy_kernel(atom: cute.CopyAtom, source: cute.Tensor, out: cute.Tensor):
    thread, _, _ = cute.arch.thread_idx()
    row, _, _ = cute.arch.block_idx()
    allocator = cutlass.utils.SmemAllocator()
    tile = allocator.allocate_tensor(cutlass.Float32, cute.make_layout((1, 128), stride=(128, 1)), 128)
    barrier = allocator.allocate_array(cutlass.Int64, 1)
    rows = cute.group_modes(cute.local_tile(source, (1, 128), (row, None)), 0, 2)
    shared, tiles = cpasync.tma_partition(atom, 0, cute.make_layout(1), cute.group_modes(tile, 0, 2), rows)
    if thread == 0:
        cute.arch.mbarrier_init(barrier, 1)
    cute.arch.mbarrier_init_fence()
    cute.arch.sync_threads()
    if thread == 0:
        cute.arch.mbarrier_arrive_and_expect_tx(barrier, 512)
        cute.copy(atom, tiles[None, 0], shared, tma_bar_ptr=barrier)
    cute.arch.mbarrier_wait(barrier, 0)
    out[row, thread] = tile[0, thread]


@cute.jit
def rows(x: cute.Tensor, out: cute.Tensor, CAP: cutlass.Constexpr, GRID: cutlass.Constexpr):
    if cutlass.const_expr(CAP == 0):
        raise ValueError("x: expected rows")
    layout = cute.make_layout((1, 128), stride=(128, 1))
    atom, source = cpasync.make_tiled_tma_atom(cpasync.CopyBulkTensorTileG2SOp(), x, layout, (1, 128))
    kernel = copy_kernel(atom, source, out)
    kernel.launch(grid=[x.shape[0], GRID, 1], block=[128, 1, 1], cluster=[2, 1, 1])
"""


@pytest.mark.skipif(importlib.util.find_spec("cutlass") is None, reason="package: needs cutlass")
def test_a_tensor_map_is_an_argument_and_a_refusal_has_its_words(tmp_path: Path) -> None:
    folder = tmp_path / "suite"
    folder.mkdir()
    (folder / "rows.py").write_text("TOLERANCES = {'fp32': ''}\n")
    manifest = MANIFEST.format(language="cute", release="4.8")
    for name, cap in (("copy", 1), ("sound", 0)):
        (folder / f"{name}.py").write_text(COPY)
        manifest += VARIANT.format(name=name, language="cute", cap=cap, grid=1)
    (folder / "suite.toml").write_text(manifest)
    suite = load(folder)
    copy, refused = LANGUAGE.build(suite, tmp_path / "build", (ARCH,), suite.variants.values())
    ((call,),) = LANGUAGE.calls(copy, "rows")
    tensor_map, out = call["arguments"]
    assert call["grid"] == [64, 1, 1] and call["cluster"] == [2, 1, 1]
    assert tensor_map[1:] == [{"at": 0, "tensor": "x", "offset": 0}] and len(tensor_map[0]["hex"]) == 2 * 128
    assert out == [{"at": 0, "tensor": "out", "offset": 0}]
    assert refused.status == "unsupported" and refused.cause == PlanRefused("x: expected rows")
