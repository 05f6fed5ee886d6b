"""Writes wgmma.cuh: one struct for each width of the warpgroup-wide product."""

HEAD = '''// The warpgroup-wide matrix product m64nNk16, fp16 in, fp32 accumulators. sm_90a alone.
//
// Written by make_wgmma.py; not to be edited.
//
// Accumulator slot i of thread t (of 128) is row t / 32 * 16 + t % 32 / 4 + (i % 4 / 2) * 8 and column
// i / 4 * 8 + t % 4 * 2 + i % 2. ss: A and B in shared memory; rs: A in registers. kTransposed: B lies as
// [depth][column] ("MN-major"), as V does. Asynchronous: neither the accumulators nor A's registers may be
// touched before the wait.
#pragma once

#include <cstdint>

template <int kColumns>
struct Wgmma;
'''


def regs(first, count):
    return ", ".join(f"%{i}" for i in range(first, first + count))


def struct(n):
    c = n // 2
    d = ",\n        ".join(
        ", ".join(f'"+f"(d[{i}])' for i in range(k, min(k + 8, c))) for k in range(0, c, 8))
    listed = '"\n        "'.join(
        ", ".join(f"%{i}" for i in range(k, min(k + 16, c))) + (", " if k + 16 < c else "")
        for k in range(0, c, 16))
    name = f"wgmma.mma_async.sync.aligned.m64n{n}k16.f32.f16.f16"
    return f'''
template <>
struct Wgmma<{n}> {{
  static constexpr int kSlots = {c};

  template <bool kTransposed>
  static __device__ __forceinline__ void ss(float (&d)[{c}], std::uint64_t a, std::uint64_t b, bool add) {{
    asm volatile(
        "{{.reg .pred add; setp.ne.b32 add, %{c + 2}, 0; {name} {{"
        "{listed}}}, "
        "%{c}, %{c + 1}, add, 1, 1, 0, %{c + 3};}}"
        : {d}
        : "l"(a), "l"(b), "r"(add ? 1 : 0), "n"(kTransposed ? 1 : 0));
  }}

  template <bool kTransposed>
  static __device__ __forceinline__ void rs(float (&d)[{c}], const unsigned (&a)[4], std::uint64_t b, bool add) {{
    asm volatile(
        "{{.reg .pred add; setp.ne.b32 add, %{c + 5}, 0; {name} {{"
        "{listed}}}, "
        "{{%{c}, %{c + 1}, %{c + 2}, %{c + 3}}}, %{c + 4}, add, 1, 1, %{c + 6};}}"
        : {d}
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b), "r"(add ? 1 : 0), "n"(kTransposed ? 1 : 0));
  }}
}};
'''


if __name__ == "__main__":
    with open("wgmma.cuh", "w") as f:
        f.write(HEAD + "".join(struct(n) for n in (32, 64, 96, 128, 192, 256)))
