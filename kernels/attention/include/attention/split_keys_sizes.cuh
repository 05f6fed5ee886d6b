// The sizes of mma_split_keys and tma_split_keys, macros for flashcore tune (examples/tune), with their defaults.
//
//   STRIPES       of 16 query rows
//   WARPS         each with all rows and its own keys
//   KEYS          of a warp, a pass: 64 take 134 KiB, which sm_89 does not have; 32 take 70 KiB, 256 keys a pass
//   MIN_BLOCKS    asked for on an SM
//   PROGRAMMATIC  1: the block is set up before its predecessor has ended
#pragma once

#ifndef STRIPES
#define STRIPES 2
#endif
#ifndef WARPS
#define WARPS 8
#endif
#ifndef KEYS
#define KEYS 64
#endif
#ifndef MIN_BLOCKS
#define MIN_BLOCKS 1
#endif
#ifndef PROGRAMMATIC
#define PROGRAMMATIC 0
#endif

static_assert(PROGRAMMATIC == 0 || PROGRAMMATIC == 1, "PROGRAMMATIC: 0 or 1");
