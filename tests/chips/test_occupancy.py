"""Occupancy against worked examples and against its own definition over many launches."""

from __future__ import annotations

import importlib.util
import os
import random
import shutil
import subprocess
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from flashcore.chips.occupancy import LIMITS, occupancy, waves, what_if
from flashcore.model.cause import cause_text

launches = {
    "arch": st.sampled_from(sorted(LIMITS)),
    "threads": st.integers(1, 1024),
    "registers": st.integers(1, 255),
    "smem": st.integers(0, 227 * 1024),
}


@pytest.mark.parametrize(
    ("arch", "threads", "registers", "smem", "blocks", "limiter"),
    [
        # By hand: 96 registers are 3,072 a warp, 5 warps a partition, 20 an SM, 2 blocks of 8.
        ("sm_90a", 256, 96, 0, 2, "registers"),
        ("sm_90", 256, 64, 0, 4, "registers"),
        ("sm_90", 256, 32, 0, 8, "registers and warps"),
        ("sm_89", 256, 32, 0, 6, "warps"),
        ("sm_86", 32, 16, 0, 16, "blocks"),
        ("sm_89", 32, 16, 0, 24, "blocks"),
        ("sm_80", 32, 16, 0, 32, "blocks"),
        ("sm_75", 256, 32, 0, 4, "warps"),
        ("sm_75", 32, 16, 4096, 16, "shared memory and blocks"),  # nothing is reserved
        ("sm_110", 256, 32, 0, 6, "warps"),
        ("sm_121", 32, 16, 0, 24, "blocks"),
        # 233,472 bytes an SM over 33,792 + 1,024 a block
        ("sm_90a", 128, 32, 33792, 6, "shared memory"),
        # A block of 227 KiB is the largest; with the reserved 1 KiB it takes the whole SM.
        ("sm_100", 128, 32, 227 * 1024, 1, "shared memory"),
        # FlashCore design 004: 4 warps with 71.5 KB give 8 % on sm_89 and 19 % on sm_90.
        ("sm_89", 128, 64, 73216, 1, "shared memory"),
        ("sm_90", 128, 64, 73216, 3, "shared memory"),
        # 20 warps by whole partitions, though 65,536 registers would be enough for 21.
        ("sm_90", 224, 96, 0, 2, "registers"),
        # Registers go to whole warps of a partition: 5 warps a block, 28 a SM at 72 registers.
        ("sm_90", 160, 72, 0, 5, "registers"),
    ],
)
def test_worked_examples(arch: str, threads: int, registers: int, smem: int, blocks: int, limiter: str) -> None:
    result = occupancy(arch, threads, registers, smem // 2, smem - smem // 2)
    assert (result.blocks_per_sm, result.limiter) == (blocks, limiter)


def test_percent_is_of_the_warps_an_sm_holds() -> None:
    assert occupancy("sm_89", 128, 64, 0, 73216).pct == pytest.approx(100 * 4 / 48)
    assert occupancy("sm_90", 128, 64, 0, 73216).pct == pytest.approx(100 * 12 / 64)
    result = occupancy("sm_90", 33, 16, 0, 0)  # two warps, the second nearly empty
    assert (result.blocks_per_sm, result.warps, result.pct) == (32, 64, 100.0)


@pytest.mark.parametrize(
    ("threads", "registers", "smem", "words"),
    [
        (1025, 32, 0, "1,025 threads"),
        (0, 32, 0, "0 threads"),
        (1024, 65, 0, "73,728 registers"),
        # 7 warps of 255 registers count as 8 at launch: exactly 65,536, which fits; 9 count as 12.
        (288, 255, 0, "98,304 registers"),
        (128, 256, 0, "256 registers"),
        (128, 32, 99 * 1024 + 1, "101,377 bytes"),
    ],
)
def test_a_launch_that_cannot_fit_has_no_blocks_and_a_reason(
    threads: int, registers: int, smem: int, words: str
) -> None:
    result = occupancy("sm_89", threads, registers, 0, smem)
    assert (result.blocks_per_sm, result.warps, result.pct) == (0, 0, 0.0)
    assert words in cause_text(result.cause)


def test_what_just_fits_is_launched() -> None:
    assert occupancy("sm_89", 224, 255, 0, 0).blocks_per_sm == 1
    assert occupancy("sm_89", 1024, 64, 0, 0).blocks_per_sm == 1
    assert occupancy("sm_89", 128, 32, 0, 99 * 1024).blocks_per_sm == 1


def test_clusters_and_unknown_archs_are_unmeasured_not_zero() -> None:
    for result in (occupancy("sm_90a", 128, 64, 0, 0, cluster=2), occupancy("sm_61", 128, 64, 0, 0)):
        assert result.blocks_per_sm is None
        assert result.pct is None
        assert result.cause
    assert what_if("sm_90a", 128, 64, 0, 0, cluster=2) is None
    assert what_if("sm_61", 128, 64, 0, 0) is None


@given(**launches)
def test_more_of_anything_never_fits_more_blocks(arch: str, threads: int, registers: int, smem: int) -> None:
    blocks = occupancy(arch, threads, registers, 0, smem).blocks_per_sm
    assert blocks is not None
    for more in (
        occupancy(arch, threads, registers + 1, 0, smem),
        occupancy(arch, threads, registers, 1, smem),
    ):
        assert more.blocks_per_sm is not None
        assert more.blocks_per_sm <= blocks


@given(**launches)
def test_what_if_keeps_its_word(arch: str, threads: int, registers: int, smem: int) -> None:
    result = what_if(arch, threads, registers, smem, 0)
    assert result is not None

    def blocks(r: int, s: int) -> int | None:
        return occupancy(arch, threads, r, 0, s).blocks_per_sm

    assert blocks(registers, smem) == result.blocks
    assert result.free_registers >= 0
    assert result.free_smem >= 0
    if result.blocks:
        assert blocks(registers + result.free_registers, smem) == result.blocks
        assert blocks(registers, smem + result.free_smem) == result.blocks
        assert blocks(registers + result.free_registers + 1, smem) != result.blocks
        assert blocks(registers, smem + result.free_smem + 1) != result.blocks
    if result.target is None:
        assert result.obstacle
        assert blocks(1, 0) == result.blocks
        return
    cut_registers, cut_smem = registers - result.fewer_registers, smem - result.fewer_smem
    assert blocks(cut_registers, cut_smem) == result.target
    assert result.target > result.blocks
    # One register or one byte less of a cut is not enough: the advice is no larger than it must be.
    if result.fewer_registers:
        assert blocks(cut_registers + 1, cut_smem) == result.blocks
    if result.fewer_smem:
        assert blocks(cut_registers, cut_smem + 1) == result.blocks


def test_what_if_in_words() -> None:
    result = what_if("sm_90a", 256, 88, 0, 33792)
    assert result is not None
    assert result.lines()[0] == "8 registers fewer give 3 blocks instead of 2"
    assert [replace(result, fewer_registers=n).lines()[0].partition(" 3 blocks")[0] for n in (1, 2)] == [
        "1 register fewer gives", "2 registers fewer give"
    ]  # fmt: skip
    one = replace(result, target=None, free_registers=1, free_smem=0)
    assert one.lines() == ["1 register is free"]
    result = what_if("sm_90a", 128, 32, 0, 75776)  # 3 blocks of 76,800 with the reserve take 230,400
    assert result is not None
    assert "1,024 bytes of shared memory are free" in result.lines()
    result = what_if("sm_90a", 1024, 32, 0, 0)
    assert result is not None
    assert result.lines()[0] == "an SM holds 64 warps: 3 blocks of 32 do not fit"
    result = what_if("sm_89", 128, 32, 0, 99 * 1024 + 100)
    assert result is not None
    assert result.lines() == ["100 bytes of shared memory fewer give 1 block instead of 0"]


# --- against the vendor's calculator, a header of the toolkit ----------------------------------

PROGRAM = r"""
#include <cuda_occupancy.h>
#include <cstdio>
int main() {
  int major, minor, warps, blocks, smem, smem_block, threads, registers, fixed, dynamic;
  while (scanf("%d %d %d %d %d %d %d %d %d %d", &major, &minor, &warps, &blocks, &smem, &smem_block,
               &threads, &registers, &fixed, &dynamic) == 10) {
    cudaOccDeviceProp device;
    device.computeMajor = major;
    device.computeMinor = minor;
    device.maxThreadsPerBlock = 1024;
    device.maxThreadsPerMultiprocessor = warps * 32;
    device.regsPerBlock = device.regsPerMultiprocessor = 65536;
    device.warpSize = 32;
    device.sharedMemPerBlock = 48 * 1024;
    device.sharedMemPerMultiprocessor = smem * 1024;
    device.sharedMemPerBlockOptin = smem_block * 1024;
    device.reservedSharedMemPerBlock = major >= 8 ? 1024 : 0;
    device.numSms = 1;
    cudaOccFuncAttributes kernel;
    kernel.maxThreadsPerBlock = 1024;
    kernel.numRegs = registers;
    kernel.sharedSizeBytes = fixed;
    kernel.maxDynamicSharedSizeBytes = smem_block * 1024 - fixed;
    kernel.shmemLimitConfig = FUNC_SHMEM_LIMIT_OPTIN;
    kernel.numBlockBarriers = 1;
    cudaOccDeviceState state;
    state.carveoutConfig = 100;
    cudaOccResult result;
    if (cudaOccMaxActiveBlocksPerMultiprocessor(&result, &device, &kernel, &state, threads, dynamic)) return 1;
    printf("%d\n", result.activeBlocksPerMultiprocessor);
  }
}
"""


def vendor_header() -> Path | None:
    """The folder of ``cuda_occupancy.h``, which Triton's wheel has too."""
    nvcc, triton = shutil.which("nvcc"), importlib.util.find_spec("triton")
    roots = [os.environ.get("CUDA_HOME"), str(Path(nvcc).parents[1]) if nvcc else None, "/usr/local/cuda"]
    roots += [f"{folder}/backends/nvidia" for folder in triton.submodule_search_locations or ()] if triton else []
    folders = [Path(r) / "include" for r in roots if r]
    return next((f for f in folders if (f / "cuda_occupancy.h").is_file()), None)


def test_the_vendors_calculator_agrees(tmp_path: Path) -> None:
    header, compiler = vendor_header(), shutil.which("g++")
    if header is None or compiler is None:
        pytest.skip("headers: needs g++ and a CUDA toolkit that has cuda_occupancy.h")
    source, program = tmp_path / "calculator.cpp", tmp_path / "calculator"
    source.write_text(PROGRAM, encoding="utf-8")
    subprocess.run([compiler, "-I", str(header), "-o", str(program), str(source)], check=True, timeout=60)
    choose = random.Random(1)
    cases = []
    for _ in range(20_000):
        arch = choose.choice(sorted(LIMITS))
        most = LIMITS[arch].smem_block * 1024
        fixed = choose.choice([0, 0, 1024, choose.randint(0, 48 * 1024)])
        dynamic = choose.randint(0, choose.choice([1000, 50_000, most]))
        cases.append((arch, choose.randint(1, 1024), choose.randint(1, 255), fixed, dynamic))
    rows = []
    for arch, *launch in cases:
        limit, version = LIMITS[arch], int(arch.removeprefix("sm_"))
        device = (version // 10, version % 10, limit.warps, limit.blocks, limit.smem, limit.smem_block)
        rows.append(" ".join(map(str, (*device, *launch))))
    given = subprocess.run(
        [str(program)], input="\n".join(rows), capture_output=True, text=True, check=True, timeout=60
    ).stdout.split()
    assert len(given) == len(cases)
    for case, expected in zip(cases, given, strict=True):
        assert occupancy(*case).blocks_per_sm == int(expected), case


@pytest.mark.parametrize("arch", sorted(LIMITS))
def test_a_block_can_have_all_shared_memory_but_what_the_system_takes(arch: str) -> None:
    limit = LIMITS[arch]
    # From sm_80 on, 1 KiB of each block is the system's.
    assert limit.smem_block == limit.smem - (int(arch[3:]) >= 80)
    assert limit.warps % 16 == 0 and limit.blocks in (16, 24, 32)
    assert occupancy(arch, 32, 16, 0, limit.smem_block * 1024).blocks_per_sm == 1
    assert not occupancy(arch, 32, 16, 0, limit.smem_block * 1024 + 1).blocks_per_sm


def test_what_would_fit_one_block_more_leaves_the_other_resource_alone() -> None:
    result = what_if("sm_90a", 256, 96, 1024, 32768)
    assert result is not None
    assert (result.blocks, result.target, result.fewer_registers, result.fewer_smem) == (2, 3, 16, 0)
    both = what_if("sm_90a", 256, 168, 0, 227 * 1024)
    assert both is not None and (both.blocks, both.target, both.fewer_registers) == (1, 2, 40)
    assert both.fewer_smem == 227 * 1024 - (228 * 1024 // 2 // 128 * 128 - 1024)


def test_a_cluster_has_no_what_if() -> None:
    assert what_if("sm_90a", 256, 96, 0, 0, 2) is None
    assert what_if("sm_90a", 256, 96, 0, 0) == what_if("sm_90a", 256, 96, 0, 0, 1) is not None


def test_where_nothing_can_be_cut_nothing_is_asked_for() -> None:
    result = what_if("sm_90a", 1024, 32, 0, 0)
    assert result is not None and result.obstacle
    assert (result.target, result.fewer_registers, result.fewer_smem) == (None, 0, 0)


@pytest.mark.parametrize(
    ("blocks", "per_sm", "sms", "count"), [(264, 2, 132, 1.0), (66, 1, 132, 0.5), (300, 2, 132, 1.1364)]
)
def test_waves_are_the_grid_over_what_the_gpu_holds(blocks: float, per_sm: float, sms: int, count: float) -> None:
    assert waves(blocks, per_sm, sms) == count
