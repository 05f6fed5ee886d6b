"""Products of half-precision matrices on the tensor cores: a tile of the answer for each program."""

from __future__ import annotations

from typing import Any

import triton
import triton.language as tl


@triton.jit
def matmul_kernel(a, b, c, M, N, K, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr):
    m = tl.program_id(0) * BM + tl.arange(0, BM)
    n = tl.program_id(1) * BN + tl.arange(0, BN)
    k = tl.arange(0, BK)
    a_tile = a + m[:, None] * K + k[None, :]
    b_tile = b + k[:, None] * N + n[None, :]
    total = tl.zeros((BM, BN), dtype=tl.float32)
    for first in range(0, K, BK):
        a_part = tl.load(a_tile, mask=(m[:, None] < M) & (k[None, :] < K - first), other=0.0)
        b_part = tl.load(b_tile, mask=(k[:, None] < K - first) & (n[None, :] < N), other=0.0)
        total = tl.dot(a_part, b_part, total)
        a_tile += BK
        b_tile += BK * N
    tl.store(c + m[:, None] * N + n[None, :], total.to(tl.float16), mask=(m[:, None] < M) & (n[None, :] < N))


def matmul(a: Any, b: Any, c: Any, BM: int, BN: int, BK: int, WARPS: int, STAGES: int) -> None:
    """Launches it. Called with the operator's arguments in the order of its schema, and the variant's config.

    Raises:
        ValueError: a tensor lies otherwise than the kernel reads it.
    """
    for name, tensor in (("a", a), ("b", b), ("c", c)):
        if not tensor.is_contiguous():
            raise ValueError(f"{name}: expected a contiguous tensor, found strides {tensor.stride()}")
    (M, K), N = a.shape, b.shape[1]
    grid = (triton.cdiv(M, BM), triton.cdiv(N, BN))
    matmul_kernel[grid](a, b, c, M, N, K, BM=BM, BN=BN, BK=BK, num_warps=WARPS, num_stages=STAGES)


def torch_matmul(a: Any, b: Any) -> Any:
    """The reference: torch's own."""
    import torch

    return torch.matmul(a, b)
