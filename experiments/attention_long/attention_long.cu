// Attention forward for long sequences on Hopper: both products by wgmma, K and V by bulk tensor copies.
//
// A block has CONSUMERS warpgroups with 64 query rows each and one producer (a warp, or a warpgroup that gives up its
// registers), which keeps STAGES tiles of KEYS keys under way. A consumer holds its scores, weights and part of O in
// registers; only K, V and Q lie in shared memory. Techniques are switches:
//
//   HEAD_DIM 64, 128    KEYS 64 ... 192     CONSUMERS 2 ... 4   STAGES 2 ...
//   CAUSAL              ELEMENT_BF16        WRITE_LSE (natural logarithm of each row's sum of exponentials)
//   PRODUCER_WARPS 1 or 4; 4 moves registers to the consumers (setmaxnreg); 0: a consumer's thread asks for the tiles
//   OVERLAP 1   P·V of one tile beside the softmax of the next, in one warpgroup
//   OVERLAP 2   and Q·Kᵀ of the one after that too: a second set of scores, so that a warpgroup never waits for them
//   PINGPONG    warpgroups issue their products in turn, so that one's softmax lies beside another's products: 1 the
//               next when they are issued, 2 when the scores are there. The tensor cores serve all that is issued
//               evenly: without order, or with 1 and many consumers, all get their scores at once, then all want the
//               exponential unit at once
//   PERSISTENT  a block an SM goes through many tiles: 1 in an order fixed before, 2 each takes the next one left
//   LAZY 1      O is rescaled only when a row's maximum has grown by more than 2^8
//   LAZY 2      after the first tile a row's maximum is not even looked for, unless a sum of weights says that it has
//               grown by much: exponentials start as soon as scores are there. The scores are gone by then; a warp
//               computes them again on its own
//   JOINT       K and V of a tile share a barrier: half as many waits, but the first products wait for both
//   KEY_GROUPS  so many consumers share 64 rows, each with every so many-th tile of keys, and merge at the end: for
//               grids that would leave multiprocessors without work
//   POLYNOMIAL  of 16 exponentials so many on the multipliers
//
// Keys go from the first to the last, so that every row has a finite maximum after its first tile, and what needs a
// mask (the diagonal, the end) comes last.

#include <attention_long/consumer.cuh>
#include <attention_long/producer.cuh>

using namespace attention_long;

extern "C" __global__ void __launch_bounds__(kThreads, 1)
    attention_kernel(const __grid_constant__ CUtensorMap q, const __grid_constant__ CUtensorMap k,
                     const __grid_constant__ CUtensorMap v, void* out, float* lse, unsigned* taken,
                     const __grid_constant__ Problem p) {
  const uint32_t memory = shared_address(shared);
  const Barriers barriers = {memory + kBarriersAt};
  // From one lane, so that the compiler sees that it is the same for a warp.
  const int warp = __shfl_sync(kAllLanes, static_cast<int>(threadIdx.x) / 32, 0);

  if (threadIdx.x == 0) {
    prefetch_map(q);
    prefetch_map(k);
    prefetch_map(v);
    for (int i = 0; i < kStages; ++i) {
      init_barrier(barriers.k_here(i), 1);
      init_barrier(barriers.v_here(i), 1);
      init_barrier(barriers.k_free(i), kRowGroups * 4);  // a lane of each warp
      init_barrier(barriers.v_free(i), kRowGroups * 4);
    }
    for (int i = 0; i < kRowGroups; ++i) {
      init_barrier(barriers.q_here(i), 1);
      init_barrier(barriers.q_free(i), 4 * kKeyGroups);
    }
    for (int i = 0; i < 2; ++i) {
      init_barrier(barriers.position_here(i), 1);
      init_barrier(barriers.position_free(i), kConsumers * 4);
    }
    publish_barriers();
  }
  __syncthreads();

  if (kProducerWarps > 0 && warp >= kConsumers * 4) {
    if (kProducerWarps == 4) give_up_registers<kProducerRegisters>();
    if (warp == kConsumers * 4 && threadIdx.x % 32 == 0) {
      produce(p, q, k, v, barriers, memory, taken);
    }
  } else {
    if (kProducerWarps == 4) take_registers<kConsumerRegisters>();
    consume(p, q, k, v, barriers, memory, out, lse, warp / 4);
  }
}
