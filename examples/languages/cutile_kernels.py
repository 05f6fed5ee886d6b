"""Row softmax and a matrix product in cuTile."""

from __future__ import annotations

from typing import Any

import cuda.tile as ct


@ct.kernel
def softmax_kernel(x, out, COLUMNS: ct.Constant[int]):
    row = ct.bid(0)
    values = ct.load(x, index=(row, 0), shape=(1, COLUMNS))
    weights = ct.exp(values - ct.max(values, axis=1, keepdims=True))
    ct.store(out, index=(row, 0), tile=weights / ct.sum(weights, axis=1, keepdims=True))


def softmax(x: Any, out: Any) -> None:
    ct.launch(None, (x.shape[0],), softmax_kernel, (x, out, x.shape[1]))


@ct.kernel
def matmul_kernel(a, b, c, M: ct.Constant[int], N: ct.Constant[int], K: ct.Constant[int]):
    m, n = ct.bid(0), ct.bid(1)
    total = ct.full((M, N), 0, dtype=ct.float32)
    for k in range(ct.num_tiles(a, axis=1, shape=(M, K))):
        a_tile = ct.load(a, index=(m, k), shape=(M, K), padding_mode=ct.PaddingMode.ZERO)
        b_tile = ct.load(b, index=(k, n), shape=(K, N), padding_mode=ct.PaddingMode.ZERO)
        total = ct.mma(a_tile, b_tile, total)
    ct.store(c, index=(m, n), tile=ct.astype(total, ct.float16))


def matmul(a: Any, b: Any, c: Any, M: int, N: int, K: int) -> None:
    grid = (ct.cdiv(c.shape[0], M), ct.cdiv(c.shape[1], N))
    ct.launch(None, grid, matmul_kernel, (a, b, c, M, N, K))
