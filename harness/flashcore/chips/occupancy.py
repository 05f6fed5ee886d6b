"""Computes theoretical occupancy from registers, shared memory, block size and arch, without a GPU or driver.

The number of blocks that fit on an SM is the smallest of four counts, one per resource. Occupancy with clusters is
unmeasured, because the driver decides their placement.

:func:`what_if` computes the reduction that one more block needs, and how much of each resource is free.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from flashcore.chips import devices
from flashcore.model.cause import Cause
from flashcore.model.causes import CLUSTER_UNKNOWN, UNKNOWN_ARCH, DoesNotFit
from flashcore.model.record import Launch
from flashcore.model.text import count, same_hardware

Resource = Literal["registers", "shared memory", "warps", "blocks"]

KIB = 1024
WARP = 32
MAX_THREADS = 1024  # per block
MAX_GRID, MAX_BLOCK = (2**31 - 1, 65535, 65535), (1024, 1024, 64)  # by dimension, on every arch
MAX_REGISTERS = 255  # per thread
REGISTERS_PER_SM = 65536
PARTITIONS = 4  # per SM, each with a quarter of the registers; warps are distributed over them
REGISTER_UNIT = 256  # allocation granularity of a warp's registers


@dataclass(frozen=True, slots=True)
class SmLimits:
    """The capacity of an SM. ``smem`` is in KiB per SM, ``smem_block`` in KiB per block (opt-in). ``cluster`` is the
    largest cluster in blocks, portable or not; 1 on an arch without clusters. ``smem_unit`` is the allocation
    granularity of shared memory in bytes."""

    warps: int
    blocks: int
    smem: int
    smem_block: int
    cluster: int = 1
    smem_unit: int = 128

    @property
    def reserved(self) -> int:
        """The bytes of shared memory per block that the system reserves, from sm_80 on."""
        return (self.smem - self.smem_block) * KIB


#: By compute capability, from the CUDA C++ Programming Guide's table of technical specifications.
LIMITS = {
    "sm_70": SmLimits(64, 32, 96, 96, smem_unit=256),
    "sm_75": SmLimits(32, 16, 64, 64, smem_unit=256),
    "sm_80": SmLimits(64, 32, 164, 163),
    "sm_86": SmLimits(48, 16, 100, 99),
    "sm_87": SmLimits(48, 16, 164, 163),
    "sm_89": SmLimits(48, 24, 100, 99),
    "sm_90": SmLimits(64, 32, 228, 227, 16),
    "sm_100": SmLimits(64, 32, 228, 227, 16),
    "sm_103": SmLimits(64, 32, 228, 227, 16),
    # The largest cluster of these is not documented: 16 refuses no valid launch.
    "sm_101": SmLimits(48, 24, 228, 227, 16),
    "sm_110": SmLimits(48, 24, 228, 227, 16),
    "sm_120": SmLimits(48, 24, 100, 99, 16),
    "sm_121": SmLimits(48, 24, 100, 99, 16),
}


def limits(arch: str) -> SmLimits | None:
    """The limits of ``arch`` (``sm_90``, ``sm_90a``, ``sm_100f``); ``None`` if they are unknown."""
    return LIMITS.get(arch.rstrip("af"))


@dataclass(frozen=True, slots=True)
class Occupancy:
    """The number of blocks that fit on an SM, and the resources that limit it.

    Args:
        blocks_per_sm: ``None`` if unmeasured, 0 if the launch fails; both have a ``cause``.
        warps: warps per SM with that many blocks.
        pct: ``warps`` in percent of an SM's maximum.
        limiters: the resources that allow no further block; several on a tie.
    """

    blocks_per_sm: int | None
    warps: int | None
    pct: float | None
    limiters: tuple[Resource, ...]
    cause: Cause | None = None

    @property
    def limiter(self) -> str:
        """The limiters as text: ``registers``, ``registers and warps``."""
        return " and ".join(self.limiters)


def occupancy(
    arch: str, threads: int, registers: int, static_smem: int, dynamic_smem: int, cluster: int = 1
) -> Occupancy:
    """The occupancy of one launch.

    Args:
        threads: threads per block.
        registers: registers per thread.
        static_smem: bytes per block as ptxas counts them, without the 1 KiB that the system reserves
            (from sm_90 on, ``cuobjdump`` and the cubin's sections include it).
        dynamic_smem: bytes per block from the launch plan.
        cluster: blocks per cluster.
    """
    limit = limits(arch)
    if limit is None:
        return Occupancy(None, None, None, (), UNKNOWN_ARCH(arch))
    reason = _refusal(limit, threads, registers, static_smem + dynamic_smem)
    if reason:
        return Occupancy(0, 0, 0.0, (), DoesNotFit(reason))
    if cluster > 1:
        return Occupancy(None, None, None, (), CLUSTER_UNKNOWN(cluster))
    warps = warps_of(threads)
    by_resource: dict[Resource, int] = {
        "registers": blocks_by_registers(warps, registers),
        "shared memory": _by_smem(limit, static_smem + dynamic_smem),
        "warps": limit.warps // warps,
        "blocks": limit.blocks,
    }
    blocks = min(by_resource.values())
    limiters = tuple(r for r, n in by_resource.items() if n == blocks)
    return Occupancy(blocks, blocks * warps, 100.0 * blocks * warps / limit.warps, limiters)


def _up(value: int, unit: int) -> int:
    return -(-value // unit) * unit


def warps_of(threads: int) -> int:
    """The warps of a block with so many threads."""
    return _up(threads, WARP) // WARP


def blocks_by_registers(warps: int, registers: int) -> int:
    """Blocks of ``warps`` warps that fit by registers per thread alone. Each partition holds whole warps."""
    per_warp = _up(max(registers, 1) * WARP, REGISTER_UNIT)
    return REGISTERS_PER_SM // PARTITIONS // per_warp * PARTITIONS // warps


def _by_smem(limit: SmLimits, smem: int) -> int:
    return limit.smem * KIB // max(_up(smem + limit.reserved, limit.smem_unit), 1)


def _most_smem(limit: SmLimits, blocks: int) -> int:
    """The most bytes of shared memory per block with ``blocks`` blocks on an SM; negative if they cannot fit."""
    return min(limit.smem * KIB // blocks // limit.smem_unit * limit.smem_unit - limit.reserved, limit.smem_block * KIB)


def _refusal(limit: SmLimits, threads: int, registers: int, smem: int) -> str:
    """Why such a launch fails; empty if it does not."""
    if not 1 <= threads <= MAX_THREADS:
        return f"{threads:,} threads per block; a block has 1 to {MAX_THREADS:,}"
    if registers > MAX_REGISTERS:
        return f"{registers} registers per thread; the limit is {MAX_REGISTERS}"
    warps = warps_of(threads)
    # The launch check distributes warps evenly over the partitions, so a block of 5 warps counts as 8.
    needed = _up(registers * WARP, REGISTER_UNIT) * _up(warps, PARTITIONS)
    if needed > REGISTERS_PER_SM:
        return f"{needed:,} registers per block; an SM has {REGISTERS_PER_SM:,}"
    if smem > limit.smem_block * KIB:
        return f"{smem:,} bytes of shared memory per block; the limit is {limit.smem_block * KIB:,}"
    return ""


def launch_refusal(arch: str, launch: Launch, kernel: Mapping[str, int]) -> Cause | None:
    """Why a driver refuses the launch on every GPU of the arch; ``None`` if it does not.

    Args:
        kernel: the kernel's facts ``registers`` and ``static_smem`` and, if it has them, ``max_threads``,
            ``max_cluster``, ``required_block_x`` and ``required_cluster_x`` (also y and z).
    """
    limit = limits(arch)
    if limit is None:
        return UNKNOWN_ARCH(arch)
    reasons = [
        f"{name}.{axis} is {size:,}; a launch has 1 to {most:,}"
        for name, sizes, largest in (("grid", launch.grid, MAX_GRID), ("block", launch.block, MAX_BLOCK))
        for axis, size, most in zip("xyz", sizes, largest, strict=True)
        if not 1 <= size <= most
    ]
    threads, blocks = math.prod(launch.block), math.prod(launch.grid)
    fit = occupancy(arch, threads, kernel["registers"], kernel["static_smem"], launch.dynamic_smem)
    if isinstance(fit.cause, DoesNotFit):
        reasons.append(fit.cause.message)
    if threads > (bound := kernel.get("max_threads", threads)):
        reasons.append(f"{threads:,} threads per block; the kernel's launch bounds allow {bound:,}")
    if launch.block != (block := _required(kernel, "block", launch.block)):
        reasons.append(f"a block of {_dims(launch.block)}; the kernel is compiled for {_dims(block)} only")
    # If the plan has no clusters, the driver uses the kernel's.
    cluster = _required(kernel, "cluster", launch.cluster)
    if launch.cluster not in (cluster, (1, 1, 1)):
        reasons.append(f"clusters of {_dims(launch.cluster)}; the kernel is compiled for {_dims(cluster)} only")
    most = min(limit.cluster, kernel.get("max_cluster", limit.cluster))
    if not 1 <= math.prod(cluster) <= most:
        reasons.append(f"clusters of {math.prod(cluster)} blocks; on {arch} the kernel allows 1 to {most}")
    elif any(size % part for size, part in zip(launch.grid, cluster, strict=True)):
        reasons.append(f"a grid of {_dims(launch.grid)} is not a multiple of its clusters of {_dims(cluster)}")
    sms = max((d.sms for d in devices.load().values() if same_hardware(d.arch, arch)), default=0)
    if launch.cooperative and sms and fit.blocks_per_sm and blocks > (room := sms * fit.blocks_per_sm):
        reasons.append(f"{blocks:,} cooperative blocks; the largest GPU of {arch} holds {room:,} at once")
    return DoesNotFit("; ".join(reasons)) if reasons else None


def _required(kernel: Mapping[str, int], what: str, planned: Sequence[int]) -> tuple[int, ...]:
    return tuple(kernel.get(f"required_{what}_{axis}", size) for axis, size in zip("xyz", planned, strict=True))


def _dims(sizes: Sequence[int]) -> str:
    return " x ".join(map(str, sizes))


# --- reductions and slack -----------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class WhatIf:
    """The reduction that one more block per SM needs, and the slack at the present number.

    Args:
        blocks: blocks per SM now.
        target: blocks per SM after the smallest reduction, usually one more; ``None`` if no reduction of registers or
            shared memory gives more (``obstacle`` is the reason).
        fewer_registers: registers per thread to save for ``target``, together with ``fewer_smem``.
        fewer_smem: bytes of shared memory per block to save for ``target``.
        free_registers: registers per thread that can be added without losing a block.
        free_smem: bytes of shared memory per block that can be added without losing a block.
    """

    blocks: int
    target: int | None
    fewer_registers: int
    fewer_smem: int
    free_registers: int
    free_smem: int
    obstacle: str = ""

    def lines(self) -> list[str]:
        """The reduction and the slack in words, one line each."""
        lines = []
        if self.target is not None:
            cuts = [f"{count(self.fewer_registers, 'register')} fewer"] if self.fewer_registers else []
            cuts += [f"{self.fewer_smem:,} bytes of shared memory fewer"] if self.fewer_smem else []
            verb = "give" if cuts[1:] or self.fewer_registers != 1 else "gives"
            lines.append(f"{' and '.join(cuts)} {verb} {count(self.target, 'block')} instead of {self.blocks}")
        elif self.obstacle:
            lines.append(self.obstacle)
        if self.free_registers:
            lines.append(f"{count(self.free_registers, 'register')} {'is' if self.free_registers == 1 else 'are'} free")
        if self.free_smem:
            lines.append(f"{self.free_smem:,} bytes of shared memory are free")
        return lines


@functools.lru_cache(maxsize=1024)  # called for each kernel, shape and verdict
def what_if(
    arch: str, threads: int, registers: int, static_smem: int, dynamic_smem: int, cluster: int = 1
) -> WhatIf | None:
    """The reduction that gives one more block per SM, and the slack; ``None`` if unmeasured.

    The arguments are those of :func:`occupancy`. A launch that fails counts as 0 blocks.
    """
    limit, smem = limits(arch), static_smem + dynamic_smem
    now = occupancy(arch, threads, registers, 0, smem, cluster).blocks_per_sm
    if limit is None or now is None:
        return None

    def blocks(r: int, s: int) -> int:
        return occupancy(arch, threads, r, 0, s).blocks_per_sm or 0

    free_registers = free_smem = 0
    if now:
        free_registers = max(r for r in range(registers, MAX_REGISTERS + 1) if blocks(r, smem) == now) - registers
        free_smem = _most_smem(limit, now) - smem
    target = now + 1
    if blocks(1, 0) < target:
        if not 1 <= threads <= MAX_THREADS:
            obstacle = f"a block has 1 to {MAX_THREADS:,} threads, not {threads:,}"
        elif limit.warps // warps_of(threads) < target:
            obstacle = f"an SM holds {limit.warps} warps: {target} blocks of {warps_of(threads)} do not fit"
        else:
            obstacle = f"an SM holds {limit.blocks} blocks, whatever their size"
        return WhatIf(now, None, 0, 0, free_registers, free_smem, obstacle)
    # Each resource is reduced as far as the target needs, independently of the other.
    enough_registers = max(r for r in range(1, MAX_REGISTERS + 1) if blocks(r, 0) >= target)
    fewer_registers = max(0, registers - enough_registers)
    fewer_smem = max(0, smem - _most_smem(limit, target))
    reached = blocks(registers - fewer_registers, smem - fewer_smem)
    return WhatIf(now, reached, fewer_registers, fewer_smem, free_registers, free_smem)


def waves(blocks: float, blocks_per_sm: float, sms: int) -> float:
    """The number of blocks in the grid over those that fit on the GPU at once."""
    return round(blocks / (sms * blocks_per_sm), 4)
