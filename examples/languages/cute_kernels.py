"""Row softmax and a matrix product in CuTe DSL."""

import cutlass
from cutlass import cute


@cute.kernel
def softmax_kernel(x: cute.Tensor, out: cute.Tensor, THREADS: cutlass.Constexpr):
    """A block for each row, which lies in registers."""
    thread, _, _ = cute.arch.thread_idx()
    row, _, _ = cute.arch.block_idx()
    count = cutlass.const_expr(x.shape[1] // THREADS)
    parts = cutlass.utils.SmemAllocator().allocate_tensor(cutlass.Float32, cute.make_layout(THREADS // 32), 16)
    values = cute.make_rmem_tensor(cute.make_layout(count), cutlass.Float32)
    largest = -cutlass.Float32.inf
    for i in cutlass.range_constexpr(count):
        values[i] = x[row, i * THREADS + thread]
        largest = cute.arch.fmax(largest, values[i])
    largest = cute.arch.warp_reduction_max(largest)
    if thread % 32 == 0:
        parts[thread // 32] = largest
    cute.arch.sync_threads()
    for warp in cutlass.range_constexpr(THREADS // 32):
        largest = cute.arch.fmax(largest, parts[warp])
    cute.arch.sync_threads()
    total = cutlass.Float32(0)
    for i in cutlass.range_constexpr(count):
        values[i] = cute.math.exp(values[i] - largest, fastmath=True)
        total = total + values[i]
    total = cute.arch.warp_reduction_sum(total)
    if thread % 32 == 0:
        parts[thread // 32] = total
    cute.arch.sync_threads()
    total = cutlass.Float32(0)
    for warp in cutlass.range_constexpr(THREADS // 32):
        total = total + parts[warp]
    for i in cutlass.range_constexpr(count):
        out[row, i * THREADS + thread] = values[i] / total


@cute.jit
def softmax(x: cute.Tensor, out: cute.Tensor, THREADS: cutlass.Constexpr):
    softmax_kernel(x, out, THREADS).launch(grid=[x.shape[0], 1, 1], block=[THREADS, 1, 1])


@cute.kernel
def matmul_kernel(
    mma: cute.TiledMma, a: cute.Tensor, b: cute.Tensor, c: cute.Tensor, M: cutlass.Constexpr, K: cutlass.Constexpr
):
    """A tile of M × M for each block, on the tensor cores, whose operands are read from global memory."""
    thread, _, _ = cute.arch.thread_idx()
    m, n, _ = cute.arch.block_idx()
    part = mma.get_slice(thread)
    b = cute.make_tensor(b.iterator, cute.make_layout((b.shape[1], b.shape[0]), stride=(1, b.shape[1])))
    a_tiles = part.partition_A(cute.local_tile(a, (M, K), (m, None)))
    b_tiles = part.partition_B(cute.local_tile(b, (M, K), (n, None)))
    c_tile = part.partition_C(cute.local_tile(c, (M, M), (m, n)))
    a_part = mma.make_fragment_A(a_tiles[None, None, None, 0])
    b_part = mma.make_fragment_B(b_tiles[None, None, None, 0])
    total = mma.make_fragment_C(c_tile)
    total.fill(0.0)
    for k in cutlass.range(a.shape[1] // K, unroll=1):
        cute.autovec_copy(a_tiles[None, None, None, k], a_part)
        cute.autovec_copy(b_tiles[None, None, None, k], b_part)
        cute.gemm(mma, total, a_part, b_part, total)
    rounded = cute.make_fragment_like(total, cutlass.Float16)
    rounded.store(total.load().to(cutlass.Float16))
    cute.autovec_copy(rounded, c_tile)


@cute.jit
def matmul(a: cute.Tensor, b: cute.Tensor, c: cute.Tensor, M: cutlass.Constexpr, K: cutlass.Constexpr):
    op = cute.nvgpu.warp.MmaF16BF16Op(cutlass.Float16, cutlass.Float32, (16, 8, 16))
    mma = cute.make_tiled_mma(op, cute.make_layout((2, 2, 1)), permutation_mnk=(32, 32, 16))
    grid = [c.shape[0] // M, c.shape[1] // M, 1]
    matmul_kernel(mma, a, b, c, M, K).launch(grid=grid, block=[128, 1, 1])
