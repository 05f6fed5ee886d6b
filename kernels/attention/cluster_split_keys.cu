// cluster_split_keys: short sequences, the keys split over a cluster of blocks.
//
// One block for 64 queries and all keys would leave half of the multiprocessors idle at the mission shape. Here a
// cluster's blocks share the keys of the same queries, each with all of its own in shared memory at once: no ring, all
// copies asked for up front. Partial results meet in distributed shared memory, as halves, each block finishing its
// share of the columns.
//
//   HEAD_DIM    64 or 128
//   ROW_GROUPS  warpgroups with 64 queries each, in a block
//   KEY_GROUPS  warpgroups that share the same queries, in a block
//   CHUNK       keys that a warpgroup takes at once
//   STAGES      chunks of a block
//   KEY_PARTS   blocks of a cluster
//   OVERLAP     P·V of one chunk beside the weights of the next
//   TURNS       two row groups take turns at the tensor cores
//
// Causal attention takes the same way, and masks more. From: none of the documents.

#include <attention/clusters/launch.cuh>

namespace {

using C = clusters::Config<HEAD_DIM, ROW_GROUPS, KEY_GROUPS, CHUNK, STAGES, KEY_PARTS, OVERLAP != 0, TURNS != 0>;

}  // namespace

extern "C" __global__ void __launch_bounds__(C::kThreads, 1)
    cluster_split_keys_kernel(const __grid_constant__ CUtensorMap q, const __grid_constant__ CUtensorMap k,
                              const __grid_constant__ CUtensorMap v, half* out,
                              const __grid_constant__ clusters::Strides strides, int seq, int ahead, int sharing,
                              float scale) {
  clusters::forward<C>(q, k, v, out, strides, seq, ahead, sharing, scale);
}

namespace {

flashcore::Plan plan(const flashcore::Shape& s) {
  flashcore::Plan p;
  if ((p.error = clusters::refusal<C>(s))) return p;
  return clusters::add_forward<C>(p, s, "cluster_split_keys_kernel");
}

cudaError_t launch(const flashcore::Args& a, const flashcore::Shape& s, const flashcore::Plan& p, void*,
                   cudaStream_t stream) {
  return clusters::launch_forward<C>(a, s, p, cluster_split_keys_kernel, stream);
}

}  // namespace

FLASHCORE_VARIANT(plan, launch)
