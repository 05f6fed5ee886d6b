"""Row softmax and a matrix product in Numba-CUDA."""

from __future__ import annotations

from typing import Any

from numba import cuda, float32, types

INFINITY = float32(float("inf"))


def _softmax(threads: int) -> Any:
    """The kernel for blocks of that many threads, each block a row."""
    warps = threads // 32

    @cuda.jit(fastmath=True)
    def softmax_kernel(x, out):
        parts = cuda.shared.array(warps, float32)
        row, thread, columns = cuda.blockIdx.x, cuda.threadIdx.x, x.shape[1]
        largest = -INFINITY
        for column in range(thread, columns, threads):
            largest = max(largest, x[row, column])
        for step in range(5):
            largest = max(largest, cuda.shfl_xor_sync(0xFFFFFFFF, largest, 16 >> step))
        if thread % 32 == 0:
            parts[thread // 32] = largest
        cuda.syncthreads()
        for warp in range(warps):
            largest = max(largest, parts[warp])
        cuda.syncthreads()
        total = float32(0)
        for column in range(thread, columns, threads):
            total += cuda.libdevice.fast_expf(x[row, column] - largest)
        for step in range(5):
            total += cuda.shfl_xor_sync(0xFFFFFFFF, total, 16 >> step)
        if thread % 32 == 0:
            parts[thread // 32] = total
        cuda.syncthreads()
        total = float32(0)
        for warp in range(warps):
            total += parts[warp]
        for column in range(thread, columns, threads):
            out[row, column] = cuda.libdevice.fast_expf(x[row, column] - largest) / total

    return softmax_kernel


def softmax(x: Any, out: Any, THREADS: int) -> None:
    _softmax(THREADS)[x.shape[0], THREADS](x, out)


@cuda.jit(fastmath=True)
def matmul_kernel(a, b, c):
    """A tile of 16 × 16 for each block, on the CUDA cores: Numba has no tensor cores."""
    a_tile = cuda.shared.array((16, 16), types.float16)
    b_tile = cuda.shared.array((16, 16), types.float16)
    n, m = cuda.threadIdx.x, cuda.threadIdx.y
    row, column = cuda.blockIdx.y * 16 + m, cuda.blockIdx.x * 16 + n
    total = float32(0)
    for first in range(0, a.shape[1], 16):
        if row < a.shape[0] and first + n < a.shape[1]:
            a_tile[m, n] = a[row, first + n]
        else:
            a_tile[m, n] = types.float16(0)
        if first + m < b.shape[0] and column < b.shape[1]:
            b_tile[m, n] = b[first + m, column]
        else:
            b_tile[m, n] = types.float16(0)
        cuda.syncthreads()
        for k in range(16):
            total += float32(a_tile[m, k]) * float32(b_tile[k, n])
        cuda.syncthreads()
    if row < c.shape[0] and column < c.shape[1]:
        c[row, column] = types.float16(total)


def matmul(a: Any, b: Any, c: Any) -> None:
    matmul_kernel[((c.shape[1] + 15) // 16, (c.shape[0] + 15) // 16), (16, 16)](a, b, c)
