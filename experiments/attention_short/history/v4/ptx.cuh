// Hopper's instructions that the kernels use, each behind a name: barriers, bulk tensor copies, clusters,
// distributed shared memory, programmatic launch.
#pragma once

#include <cuda.h>
#include <cuda_fp16.h>
#include <cuda_runtime.h>

#include <cstdint>

namespace ptx {

__device__ __forceinline__ std::uint32_t shared_address(const void* p) {
  return static_cast<std::uint32_t>(__cvta_generic_to_shared(p));
}

// ---- barriers; by shared address, so that a barrier of another block of the cluster can be named too

__device__ __forceinline__ void init_barrier(std::uint32_t bar, unsigned arrivals) {
  asm volatile("mbarrier.init.shared.b64 [%0], %1;" ::"r"(bar), "r"(arrivals) : "memory");
}

__device__ __forceinline__ void publish_barriers() {
  asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
}

__device__ __forceinline__ void arrive_expecting(std::uint32_t bar, unsigned bytes) {
  asm volatile("mbarrier.arrive.expect_tx.shared.b64 _, [%0], %1;" ::"r"(bar), "r"(bytes) : "memory");
}

__device__ __forceinline__ void arrive(std::uint32_t bar) {
  asm volatile("mbarrier.arrive.shared.b64 _, [%0];" ::"r"(bar) : "memory");
}

// `bar` as map_to_rank() gives it.
__device__ __forceinline__ void arrive_remote(std::uint32_t bar) {
  asm volatile("mbarrier.arrive.release.cluster.shared::cluster.b64 _, [%0];" ::"r"(bar) : "memory");
}

__device__ __forceinline__ void wait(std::uint32_t bar, unsigned parity) {
  asm volatile(
      "{\n .reg .pred p;\n"
      "again:\n mbarrier.try_wait.parity.shared.b64 p, [%0], %1;\n"
      " @p bra done;\n bra again;\n"
      "done:\n}"
      ::"r"(bar), "r"(parity)
      : "memory");
}

// Also acquires what blocks of the cluster have written.
__device__ __forceinline__ void wait_cluster(std::uint32_t bar, unsigned parity) {
  asm volatile(
      "{\n .reg .pred p;\n"
      "again:\n mbarrier.try_wait.parity.acquire.cluster.shared::cta.b64 p, [%0], %1;\n"
      " @p bra done;\n bra again;\n"
      "done:\n}"
      ::"r"(bar), "r"(parity)
      : "memory");
}

// Two warpgroups that take turns: barrier `id` is waited for by one and arrived at by the other.
__device__ __forceinline__ void turn_wait(int id) { asm volatile("bar.sync %0, 256;" ::"r"(id) : "memory"); }
__device__ __forceinline__ void turn_arrive(int id) { asm volatile("bar.arrive %0, 256;" ::"r"(id) : "memory"); }

// ---- bulk tensor copies

__device__ __forceinline__ void prefetch_map(const CUtensorMap& map) {
  asm volatile("prefetch.tensormap [%0];" ::"l"(&map) : "memory");
}

__device__ __forceinline__ void copy_tile(std::uint32_t to, const CUtensorMap& map, int x, int row, int head,
                                          std::uint32_t bar) {
  asm volatile(
      "cp.async.bulk.tensor.3d.shared::cluster.global.tile.mbarrier::complete_tx::bytes [%0], [%1, {%2, %3, %4}], [%5];"
      ::"r"(to), "l"(&map), "r"(x), "r"(row), "r"(head), "r"(bar)
      : "memory");
}

// Into the same place of every block whose bit in `blocks` is set, each block's own barrier told.
__device__ __forceinline__ void copy_tile_to(std::uint32_t to, const CUtensorMap& map, int x, int row, int head,
                                             std::uint32_t bar, std::uint16_t blocks) {
  asm volatile(
      "cp.async.bulk.tensor.3d.shared::cluster.global.tile.mbarrier::complete_tx::bytes.multicast::cluster "
      "[%0], [%1, {%2, %3, %4}], [%5], %6;"
      ::"r"(to), "l"(&map), "r"(x), "r"(row), "r"(head), "r"(bar), "h"(blocks)
      : "memory");
}

// ---- clusters

__device__ __forceinline__ unsigned cluster_rank() {
  unsigned r;
  asm volatile("mov.u32 %0, %%cluster_ctarank;" : "=r"(r));
  return r;
}

__device__ __forceinline__ std::uint32_t map_to_rank(std::uint32_t address, unsigned rank) {
  std::uint32_t r;
  asm volatile("mapa.shared::cluster.u32 %0, %1, %2;" : "=r"(r) : "r"(address), "r"(rank));
  return r;
}

__device__ __forceinline__ void cluster_arrive() { asm volatile("barrier.cluster.arrive.release.aligned;" ::: "memory"); }
__device__ __forceinline__ void cluster_arrive_relaxed() {
  asm volatile("barrier.cluster.arrive.relaxed.aligned;" ::: "memory");
}
__device__ __forceinline__ void cluster_wait() { asm volatile("barrier.cluster.wait.acquire.aligned;" ::: "memory"); }

// 16 bytes into another block's shared memory, counted by that block's barrier.
__device__ __forceinline__ void store_remote(std::uint32_t to, float4 v, std::uint32_t bar) {
  asm volatile(
      "st.async.weak.shared::cluster.mbarrier::complete_tx::bytes.v4.f32 [%0], {%1, %2, %3, %4}, [%5];"
      ::"r"(to), "f"(v.x), "f"(v.y), "f"(v.z), "f"(v.w), "r"(bar)
      : "memory");
}

__device__ __forceinline__ void store_remote(std::uint32_t to, float2 v, std::uint32_t bar) {
  asm volatile(
      "st.async.weak.shared::cluster.mbarrier::complete_tx::bytes.v2.f32 [%0], {%1, %2}, [%3];"
      ::"r"(to), "f"(v.x), "f"(v.y), "r"(bar)
      : "memory");
}

__device__ __forceinline__ void store_shared(std::uint32_t to, float4 v) {
  asm volatile("st.shared.v4.f32 [%0], {%1, %2, %3, %4};" ::"r"(to), "f"(v.x), "f"(v.y), "f"(v.z), "f"(v.w)
               : "memory");
}

__device__ __forceinline__ float4 load_shared(std::uint32_t from) {
  float4 v;
  asm volatile("ld.shared.v4.f32 {%0, %1, %2, %3}, [%4];"
               : "=f"(v.x), "=f"(v.y), "=f"(v.z), "=f"(v.w)
               : "r"(from)
               : "memory");
  return v;
}

__device__ __forceinline__ float2 load_shared2(std::uint32_t from) {
  float2 v;
  asm volatile("ld.shared.v2.f32 {%0, %1}, [%2];" : "=f"(v.x), "=f"(v.y) : "r"(from) : "memory");
  return v;
}

// ---- the tensor cores

// Bits 0-13: address / 16; 16-29: leading offset / 16; 32-45: from one group of eight rows to the next, / 16;
// 62-63: 1 for the 128-byte swizzle.
__device__ __forceinline__ std::uint64_t descriptor(std::uint32_t address, int leading_bytes) {
  const std::uint64_t fixed =
      (1ull << 62) | (static_cast<std::uint64_t>(1024 / 16) << 32) | (static_cast<std::uint64_t>(leading_bytes / 16) << 16);
  return fixed | ((address & 0x3ffffu) >> 4);
}

__device__ __forceinline__ void products_fence() { asm volatile("wgmma.fence.sync.aligned;" ::: "memory"); }
__device__ __forceinline__ void products_commit() { asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory"); }
template <int kPending>
__device__ __forceinline__ void products_wait() {
  asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(kPending) : "memory");
}

__device__ __forceinline__ void load_matrices(unsigned (&r)[4], std::uint32_t address) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
               : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
               : "r"(address)
               : "memory");
}

// What x depends on is done before what follows: ptxas moves a wait for products up past arithmetic that could hide
// it, but not past a branch. x must not be negative.
__device__ __forceinline__ void settle(float x) {
  if (__any_sync(0xffffffffu, x < 0.0f)) asm volatile("nanosleep.u32 20;");  // never; by all lanes alike
}

// An end of what ptxas puts into order at once. seq must not be negative.
__device__ __forceinline__ void cut(int seq) {
  int x;
  asm volatile("mov.s32 %0, %1;" : "=r"(x) : "r"(seq));
  if (x < 0) asm volatile("nanosleep.u32 20;");
}

// ---- arithmetic

__device__ __forceinline__ float exp2_unit(float x) {
  float y;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
}

// The same, and an addition, in the order of the source.
__device__ __forceinline__ float exp2_unit_in_order(float x) {
  float y;
  asm volatile("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
}

__device__ __forceinline__ void add_in_order(float& sum, float x) {
  asm volatile("add.ftz.f32 %0, %0, %1;" : "+f"(sum) : "f"(x));
}

// 2^x on the FMA pipe for x in [-inf, 120]: 2^(nearest integer) times a cubic on [-1/2, 1/2], relative error 8e-5.
__device__ __forceinline__ float exp2_polynomial(float x) {
  constexpr float kMagic = 12582912.0f;  // 1.5 * 2^23: adding it leaves the nearest integer in the low bits
  x = fmaxf(x, -126.0f);
  const float t = x + kMagic;
  const float f = x - (t - kMagic);
  float p = fmaf(f, 0.05517109f, 0.24260999f);
  p = fmaf(p, f, 0.69326097f);
  p = fmaf(p, f, 0.99992814f);
  return __int_as_float(__float_as_int(p) + (__float_as_int(t) << 23));
}

__device__ __forceinline__ float reciprocal(float x) {
  float y;
  asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
}

__device__ __forceinline__ unsigned pack_halves(float low, float high) {
  const half2 pair = __floats2half2_rn(low, high);
  return *reinterpret_cast<const unsigned*>(&pair);
}

// ---- programmatic launch

__device__ __forceinline__ void release_successor() { asm volatile("griddepcontrol.launch_dependents;" ::: "memory"); }
__device__ __forceinline__ void await_predecessor() { asm volatile("griddepcontrol.wait;" ::: "memory"); }

}  // namespace ptx
