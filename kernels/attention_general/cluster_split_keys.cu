// cluster_split_keys: short sequences, the keys split over a cluster of blocks.
//
// One block for 64 queries and all keys would leave half of the SMs idle on the mission shape. Here a cluster's blocks
// share the keys of the same queries. Each block has all its keys in shared memory at once: no ring, all copies are
// issued at the start. Partial results are exchanged through distributed shared memory, as halves; each block finishes
// its share of the columns.
//
//   HEAD_DIM    64 or 128
//   ROW_GROUPS  warpgroups with 64 queries each, per block
//   KEY_GROUPS  warpgroups that share the same queries, per block
//   CHUNK       keys per warpgroup and step
//   STAGES      chunks per block
//   KEY_PARTS   blocks per cluster
//   OVERLAP     P·V of one chunk overlaps the softmax of the next
//   TURNS       two row groups alternate on the tensor cores
//
// Causal attention uses the same path with more masking. From: no design document.

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
