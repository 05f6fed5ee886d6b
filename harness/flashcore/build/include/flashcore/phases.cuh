// Marks what each warp of a kernel does over time, for `flashcore phases` (docs/how-to/find-the-limiter.md).
//
//   FLASHCORE_ROLE(phases, "consumer");   the warp's role; declares `phases`, whose scope ends the last phase
//   FLASHCORE_PHASE(phases, "softmax");   a phase, which lasts until the next one
//
// Functions that mark phases take a flashcore::Phases&. Names have at most 12 of a-z, 0-9 and _. Unless FLASHCORE_PHASES
// is defined, which only that command does, markers are no code.
#pragma once

#ifdef FLASHCORE_PHASES
#include <flashcore/phase_recorder.cuh>  // of the plugin phases
#else
namespace flashcore {
struct Phases {};
}  // namespace flashcore
#define FLASHCORE_ROLE(phases, name) [[maybe_unused]] flashcore::Phases phases
#define FLASHCORE_PHASE(phases, name) static_cast<void>(phases)
#endif
