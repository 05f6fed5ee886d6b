// The sizes of mma_split_keys and tma_split_keys, macros for flashcore tune (examples/tune), with their defaults.
//
//   STRIPES       stripes of 16 query rows
//   WARPS         each with all rows and its own keys
//   KEYS          per warp and pass: 64 need 134 KiB, which sm_89 does not have; 32 need 70 KiB, 256 keys per pass
//   MIN_BLOCKS    requested per SM
//   PROGRAMMATIC  1: the block sets up before its predecessor has ended
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
