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
