// The clock, measured inside the kernel: SM cycles against the chip's nanoseconds.
//
// One thread of each block reads both counters around the measured part, after the block's setup and before it
// writes its answer. Over all blocks, the sum of cycles over the sum of nanoseconds is the SM clock while the
// kernel ran; the last stop minus the first start is its duration.
#pragma once

namespace roofs {

// A row of `clocks`: cycles at start and stop, then nanoseconds at start and stop.
constexpr int kClockColumns = 4;

class Stopwatch {
 public:
  // Called by the whole block: the measured part starts when every thread is ready.
  __device__ void start() {
    __syncthreads();
    read(cycles_, nanoseconds_);
  }

  // Called by the whole block: the measured part ends when every thread is done. Unless `clocked`, the row is
  // zeros, so that repeated calls have equal answers when the kernel is checked. `index` is the row: the block's
  // own, unless there are so many blocks that only some of them read the clock.
  __device__ void stop(long long* clocks, int clocked, long long index = blockIdx.x) const {
    __syncthreads();
    if (threadIdx.x != 0) return;
    long long cycles, nanoseconds;
    read(cycles, nanoseconds);
    long long* row = clocks + index * kClockColumns;
    row[0] = clocked ? cycles_ : 0;
    row[1] = clocked ? cycles : 0;
    row[2] = clocked ? nanoseconds_ : 0;
    row[3] = clocked ? nanoseconds : 0;
  }

 private:
  __device__ static void read(long long& cycles, long long& nanoseconds) {
    asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(nanoseconds)::"memory");
    asm volatile("mov.u64 %0, %%clock64;" : "=l"(cycles)::"memory");
  }

  long long cycles_;
  long long nanoseconds_;
};

}  // namespace roofs
