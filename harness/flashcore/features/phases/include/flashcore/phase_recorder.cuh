// Records the phases of <flashcore/phases.cuh>: FLASHCORE_PHASES of each warp at most, in FLASHCORE_PHASES_BLOCKS blocks.
//
// Recorded blocks lie evenly in the grid. Lane 0 of each of their warps writes; the others execute the same instructions.
// A marker reads the SM's clock (clock64) and stores 16 bytes. The chip's clock (globaltimer, ns), which is coarser but
// the same on every SM, is read where a role begins and ends: it places and scales the SMs' clocks.
#pragma once

#include <cuda_runtime.h>

#ifndef FLASHCORE_PHASES_BLOCKS
#define FLASHCORE_PHASES_BLOCKS 4
#endif

namespace flashcore {

using PhaseWord = unsigned long long;

struct alignas(16) PhaseEvent {
  PhaseWord clock, name;
};

// The layout that flashcore/features/phases/timeline.py reads.
struct WarpPhases {
  PhaseWord role, begin_clock, begin_ns, end_clock, end_ns;
  unsigned block, sm, events, scopes;  // `events` counts those without a place too
  PhaseWord unused;
  PhaseEvent event[FLASHCORE_PHASES];
};
constexpr int kPhaseWarps = 32;  // of a block
static __device__ WarpPhases recorded_phases[FLASHCORE_PHASES_BLOCKS * kPhaseWarps];

// Is no constant: its call makes a wrong name an error of the compiler, which shows it.
__host__ __device__ PhaseWord refuse(const char* reason);

// A name as a number: digits to the base 38.
__host__ __device__ constexpr PhaseWord phase_name(const char* text) {
  PhaseWord code = 0;
  int length = 0;
  for (; text[length] != 0; ++length) {
    const char c = text[length];
    if (length == 12) return refuse("a name has at most 12 characters");
    if (!(c >= 'a' && c <= 'z') && !(c >= '0' && c <= '9') && c != '_') return refuse("a name has only a-z, 0-9 and _");
    code = code * 38 + static_cast<PhaseWord>(c == '_' ? 37 : c >= 'a' ? c - 'a' + 1 : c - '0' + 27);
  }
  return length > 0 ? code : refuse("a name is not empty");
}

template <PhaseWord value>
struct PhaseName {
  static constexpr PhaseWord code = value;
};

class Phases {
 public:
  __device__ __forceinline__ explicit Phases(PhaseWord role) {
    const unsigned thread = threadIdx.x + blockDim.x * (threadIdx.y + blockDim.y * threadIdx.z);
    const PhaseWord block = blockIdx.x + static_cast<PhaseWord>(gridDim.x) * (blockIdx.y + gridDim.y * blockIdx.z);
    const PhaseWord blocks = static_cast<PhaseWord>(gridDim.x) * gridDim.y * gridDim.z;
    const PhaseWord step = (blocks + FLASHCORE_PHASES_BLOCKS - 1) / FLASHCORE_PHASES_BLOCKS;
    if (thread % 32 != 0 || block % step != 0) return;
    warp_ = recorded_phases + block / step * kPhaseWarps + thread / 32;
    warp_->role = role;
    warp_->block = static_cast<unsigned>(block);
    asm volatile("mov.u32 %0, %%smid;" : "=r"(warp_->sm));
    read_clocks(warp_->begin_clock, warp_->begin_ns);
  }
  Phases(const Phases&) = delete;

  __device__ __forceinline__ ~Phases() {
    if (warp_ == nullptr) return;
    read_clocks(warp_->end_clock, warp_->end_ns);
    warp_->events = events_;
    warp_->scopes += 1;
  }

  // Without a branch: the store is predicated.
  __device__ __forceinline__ void begin(PhaseWord name) {
    const PhaseEvent* event = warp_ != nullptr && events_ < FLASHCORE_PHASES ? warp_->event + events_ : nullptr;
    asm volatile(
        "{\n"
        ".reg .pred there;\n"
        ".reg .u64 clock;\n"
        "setp.ne.u64 there, %0, 0;\n"
        "mov.u64 clock, %%clock64;\n"
        "@there st.global.v2.u64 [%0], {clock, %1};\n"
        "}" ::"l"(event), "l"(name)
        : "memory");
    ++events_;
  }

 private:
  static __device__ __forceinline__ void read_clocks(PhaseWord& clock, PhaseWord& ns) {
    PhaseWord at, of_chip;
    asm volatile("mov.u64 %0, %%clock64;\nmov.u64 %1, %%globaltimer;" : "=l"(at), "=l"(of_chip)::"memory");
    clock = at;
    ns = of_chip;
  }

  WarpPhases* warp_ = nullptr;
  unsigned events_ = 0;
};

}  // namespace flashcore

// Copies what was recorded to `to`, or clears it where that is null. Returns a cudaError_t, or -1 for another size.
extern "C" int flashcore_phases(void* to, unsigned long long bytes) {
  if (bytes != sizeof(flashcore::recorded_phases)) return -1;
  void* from = nullptr;
  const cudaError_t error = cudaGetSymbolAddress(&from, flashcore::recorded_phases);
  if (error != cudaSuccess) return error;
  return to == nullptr ? cudaMemset(from, 0, bytes) : cudaMemcpy(to, from, bytes, cudaMemcpyDeviceToHost);
}

#define FLASHCORE_ROLE(phases, name) \
  flashcore::Phases phases(flashcore::PhaseName<flashcore::phase_name(name)>::code)
#define FLASHCORE_PHASE(phases, name) phases.begin(flashcore::PhaseName<flashcore::phase_name(name)>::code)
