"""Mutants of sources: symbols that variants share, plans that depend on the arch or cannot launch, hidden inputs."""

from __future__ import annotations

import random
import re
from typing import Any

from benchmarks.holes.place import Answer, Place

#: The mutant, its outcome (``noticed``, ``equivalent``, ``left`` with a reason, or ``wrong``), and the message.
Row = tuple[str, str, str]
SMALL = (256, 512, 1024, 2048, 4096)


def seen(answer: Answer, harmless: bool) -> tuple[str, str]:
    """A planted fault must fail the gate; the same without a fault must not."""
    if harmless:
        return ("equivalent" if answer.code == 0 else "wrong"), f"control: {answer.words}"
    return ("wrong" if answer.code == 0 or answer.is_defect else "noticed"), answer.words


def static(place: Place, variants: str = "plain", arch: str = "9.0a") -> Answer:
    """The gate of static facts, without the baseline, which new sources do not have; of all archs if none is named."""
    place.without_baseline()
    return place.gate("--variant", variants, env={"CUDA_ARCH": arch})


_HOLDERS = {
    "static of an inline function": "inline T& holder() {{ static T value = {init}; return value; }}\n"
    "#define V holder()",
    "inline variable": "inline T value = {init};\n#define V value",
    "static member of a template": "template <int N> struct Holder {{ static T value; }};\n"
    "template <int N> T Holder<N>::value = {init};\n"
    "#define V Holder<0>::value",
    "inline static member": "struct Holder {{ static inline T value = {init}; }};\n#define V Holder::value",
    "weak variable": "__attribute__((weak)) T value = {init};\n#define V value",
    "global variable": "T value = {init};\n#define V value",
    "variable of C": 'extern "C" {{ T value = {init}; }}\n#define V value',
    "function of C": 'extern "C" T value() {{ return {init}; }}\n#define V value()',
    "inline function": "inline T value() {{ return {init}; }}\n#define V value()",
    "weak function": "__attribute__((weak)) T value() {{ return {init}; }}\n#define V value()",
    "virtual function": "struct Base {{ virtual T get() const {{ return {init}; }} virtual ~Base() = default; }};\n"
    "#define V Base().get()",
    "variable of a thread": "inline thread_local T value = {init};\n#define V value",
    "static constructor": "struct Made {{ T value; Made() : value({init}) {{}} }};\n"
    "inline Made made;\n#define V made.value",
    "unique global template variable": "template <class> T value = {init};\n#define V value<int>",
}


def shared_symbols(place: Place, chance: random.Random, harmless: bool) -> Row:
    """1. Variants that define one symbol with different values, of which each must keep its own."""
    kind, definition = chance.choice([*_HOLDERS.items()])
    of_type = chance.choice(("int", "unsigned", "long long", "double", "volatile int"))
    small, big = chance.choice(SMALL), chance.choice(SMALL) if harmless else 1024 * chance.randrange(17, 48)
    values = dict(zip(chance.sample(("plain", "wide"), 2), (small, big), strict=True))
    header = place.suite / "include" / "scale.cuh"
    text = f"using T = {of_type};\n" + definition.format(init="SHARED")
    header.write_text(header.read_text() + f"\n{text}\n")
    place.edit(place.suite / "scale.cu", ".block = dim3(256)}", ".block = dim3(256), .dynamic_smem = (unsigned)(V)}")
    place.edit(place.manifest, "config = { ELEMENTS = 4 }", f"config = {{ ELEMENTS = 4, SHARED = {values['wide']} }}")
    head = '[variant.plain]\nsource = "scale.cu"\n'
    place.edit(place.manifest, head, f"{head}config = {{ SHARED = {values['plain']} }}\n")
    answer = static(place, "[pw]*")
    outcome, words = seen(answer, harmless)
    shown = {
        name: {v for key, (_, v) in answer.values.items() if key.startswith(f"shared_memory ['{name}'")}
        for name in values
    }
    if shown != {name: {value} for name, value in values.items()}:
        outcome, words = "wrong", f"expected {values}, found {shown}: {words}"
    return f"{kind}, {of_type}, {values}", outcome, words


_CONDITIONS = {
    "preprocessor": "#if __CUDA_ARCH_LIST__ == {number}\n#define V {bad}\n#else\n#define V {good}\n#endif\n",
    "list as an array": "static const int archs[] = {{__CUDA_ARCH_LIST__}};\n"
    "#define V (archs[0] == {number} ? {bad} : {good})\n",
    "pasted name": "#define PASTE_(a, b) a##b\n"
    "#define PASTE(a, b) PASTE_(a, b)\n#define at_800 {at_800}\n#define at_900 {at_900}\n"
    "#define V PASTE(at_, __CUDA_ARCH_LIST__)\n",
    "text of the list": "#include <cstring>\n#define TEXT_(x) #x\n#define TEXT(x) TEXT_(x)\n"
    '#define V (std::strstr(TEXT(__CUDA_ARCH_LIST__), "{number}") ? {bad} : {good})\n',
    "template on the list": "template <int> struct Of {{ static constexpr unsigned value = {good}; }};\n"
    "template <> struct Of<{number}> {{ static constexpr unsigned value = {bad}; }};\n"
    "#define V Of<__CUDA_ARCH_LIST__>::value\n",
}
_PLACES = {
    "dynamic_smem": (".dynamic_smem = V}", 1024, 20480),
    "threads": (None, 256, 1024),
    "workspace": ("workspace", 4096, 1 << 20),
}


def plan_of_an_arch(place: Place, chance: random.Random, harmless: bool) -> Row:
    """2. A plan that breaks a budget on one arch only."""
    form, text = chance.choice([*_CONDITIONS.items()])
    what, (_, good, bad) = chance.choice([*_PLACES.items()])
    number = chance.choice((800, 900))
    bad = good if harmless else bad + 64 * chance.randrange(0, 8) * (what != "threads")
    values = {f"at_{n}": bad if n == number else good for n in (800, 900)}
    source, header = place.suite / "scale.cu", place.suite / "include" / "scale.cuh"
    defined = text.format(number=number, good=good, bad=bad, **values)
    where = chance.choice((source, header))
    where.write_text(
        where.read_text().replace('#include "scale.cuh"\n', f'#include "scale.cuh"\n{defined}')
        if where == source
        else f"{where.read_text()}\n{defined}"
    )
    if what == "workspace":
        place.edit(
            source, "return flashcore::Plan().add(", "flashcore::Plan p;\n  p.workspace_bytes = V;\n  return p.add("
        )
    else:
        block = "dim3(V)" if what == "threads" else "dim3(256), .dynamic_smem = V"
        place.edit(source, ".block = dim3(256)", f".block = {block}")
    answer = static(place, arch="")
    return f"{what} by {form} in {where.name}, {number}: {bad}", *seen(answer, harmless)


_LIMITS = {  # field → (what is allowed, what is not)
    "grid.x": ((1, 1 << 20), (0, 1 << 31)),
    "grid.y": ((1, 65535), (0, 65536)),
    "grid.z": ((1, 65535), (0, 65536)),
    "block.x": ((1, 256), (0, 1025)),
    "block.y": ((1, 2), (0, 1025)),
    "block.z": ((1, 2), (0, 65)),
    "dynamic_smem": ((0, 16384), (232449, 1 << 20)),
    "cluster.x": ((1, 1), (0, 64)),
    "cluster.z": ((1, 1), (32, 64)),
    "bounds": ((512, 1024), (32, 255)),
    "kernel": ((0, 0), (1, 99)),
    "count": ((1, 32), (33, 64)),
}


def unlaunchable(place: Place, chance: random.Random, harmless: bool) -> Row:
    """9. Plans that the driver would refuse; also at the very edge."""
    field, (allowed, refused) = chance.choice([*_LIMITS.items()])
    low, high = allowed if harmless else refused
    value = chance.choice((low, high)) if low == 0 and not harmless else chance.randint(low, high)
    source = place.suite / "scale.cu"
    if field == "bounds":
        place.edit(source, "__global__ void scale_kernel", f"__global__ void __launch_bounds__({value}) scale_kernel")
    elif field == "kernel":
        place.edit(source, '"scale_kernel"', f'"scale_kernel{"_other" * (not harmless)}"')
    elif field == "count":
        place.edit(
            source,
            "  return flashcore::Plan().add(",
            f"  flashcore::Plan p;\n  for (int i = 1; i < {value}; ++i) "
            '\n    p.add({.kernel = "scale_kernel", .grid = dim3(blocks), .block = dim3(256)});\n  return p.add(',
        )
    elif field == "dynamic_smem":
        place.edit(source, ".block = dim3(256)", f".block = dim3(256), .dynamic_smem = {value}u")
        place.edit(place.manifest, "max = 16384", "max = 99999999")
    else:
        name, _, axis = field.partition(".")
        dims: dict[str, list[Any]] = {
            "grid": ["blocks", 1, 1],
            "block": [chance.choice((32, 128)), 1, 1],
            "cluster": [1, 1, 1],
        }
        dims[name]["xyz".index(axis)] = f"{value}u"
        fields = ", ".join(f".{n} = dim3({', '.join(map(str, d))})" for n, d in dims.items())
        place.edit(source, ".grid = dim3(blocks), .block = dim3(256)", fields)
        place.edit(place.manifest, "max = 512", "max = 99999999")
    answer = static(place, arch=(arch := chance.choice(("8.0", "9.0a"))))
    return f"{field} = {value} on {arch}", *seen(answer, harmless)


_HIDDEN = {  # construct → (head of the source, file, before, after)
    "computed include": ('#define FILE_NAME() "hidden.h"\n#include FILE_NAME()\n', "hidden.h", 1),
    "computed probe": (
        "#define NAME <hidden.h>\n#if __has_include(NAME)\n#include NAME\n#else\n#define V 16\n#endif\n",
        "hidden.h",
        0,
    ),
    "plain probe": ('#if __has_include("hidden.h")\n#include "hidden.h"\n#else\n#define V 16\n#endif\n', "hidden.h", 0),
    "nested include": ('#include "outer.h"\n', "hidden.h", 1),
    "include of a folder above": ('#include "../toy/hidden.h"\n', "hidden.h", 1),
    "assembler": (
        '#define V bytes[0] * 16\nextern "C" __attribute__((visibility("hidden"))) const unsigned char bytes[];\n'
        '#ifndef __CUDA_ARCH__\nasm(".pushsection .rodata\\nbytes: .incbin \\"hidden.bin\\"\\n.popsection");\n#endif\n',
        "hidden.bin",
        1,
    ),
    "environment in plan()": ('#include <cstdlib>\n#define V (unsigned)std::atoi(std::getenv("HIDDEN"))\n', "", 1),
    "file in plan()": (
        '#include <cstdio>\nstatic unsigned read_it() { unsigned v = 0; FILE* f = fopen("HERE/hidden.txt", "r");'
        ' if (f) { if (fscanf(f, "%u", &v) != 1) v = 7; fclose(f); } return v; }\n#define V read_it()\n',
        "hidden.txt",
        1,
    ),
    "options in a variable": ("", "NVCC_APPEND_FLAGS", 1),
}


def hidden_inputs(place: Place, chance: random.Random, harmless: bool) -> Row:
    """5. An input that the compiler does not list changes: a cached build must say what a clean one says."""
    what, (head, file, before) = chance.choice([*_HIDDEN.items()])
    first = 16 * chance.randrange(1, 64)
    second = first if harmless else 1024 * chance.randrange(17, 40)
    if file == "hidden.bin":
        first, second = 16 * chance.randrange(1, 100), 16 * chance.randrange(100, 250)
        second = first if harmless else second
    source = place.suite / "scale.cu"
    env = {"HIDDEN": str(first), "CUDA_ARCH": "9.0a"}

    def put(value: int) -> None:
        env["HIDDEN"] = str(value)
        if file == "NVCC_APPEND_FLAGS":
            env[file] = f"-DV={value}"
        elif file.endswith(".h"):
            (place.suite / file).write_text(f"#define V {value}\n")
        elif file.endswith(".txt"):
            (place.suite / file).write_text(str(value))
        elif file:
            (place.suite / file).write_bytes(bytes([value // 16]))

    (place.suite / "outer.h").write_text('#include "hidden.h"\n')
    text = head.replace("HERE", str(place.suite)) + source.read_text()
    source.write_text(text.replace(".block = dim3(256)", ".block = dim3(256), .dynamic_smem = V"))
    if before or harmless:
        put(first)
    place.without_baseline()
    words = ("--variant", "plain")
    place.gate(*words, env=env)
    put(second)
    cached = place.gate(*words, env=env)
    clean = place.flashcore(
        "gate",
        "--suite",
        str(place.suite),
        "--profiles",
        str(place.profiles),
        "--format",
        "json",
        "-q",
        "--build-dir",
        str(place.folder / "clean" / "build"),
        *words,
        env=env,
    )
    same = cached.values == clean.values and cached.code == clean.code and bool(clean.values)
    shown = {v for key, (_, v) in clean.values.items() if key.startswith("shared_memory")}
    outcome = ("equivalent" if harmless else "noticed") if same else "wrong"
    return f"{what}: {first} → {second}", outcome, f"{cached.words}; shared memory {re.sub(' +', ' ', str(shown))}"


#: 64 values that live across a barrier, in 32 registers; a guard that is never true makes the same body harmless.
_BODY = """{{
  const long long i = blockIdx.x * 256LL + threadIdx.x;
  float a[64];
#pragma unroll
  for (int k = 0; k < {values}; ++k) a[k] = x[(i * 64 + k) % count];
  __syncthreads();
  float s = 0;
#pragma unroll
  for (int k = 0; k < {values}; ++k) s += a[k] * a[{values} - 1 - k] * (k + factor);
  {end}
}}
"""
_ARGUMENTS = "(const float* x, float* out, float factor, long long count)"
_KERNELS = {  # linkage → (what is before the body, how it ends, how launch() starts it)
    "C": ('extern "C" __global__ void {bounds} heavy', "out[i] = s;", "heavy"),
    "static": ("static __global__ void {bounds} heavy", "out[i] = s;", "heavy"),
    "C++": ("__global__ void {bounds} heavy", "out[i] = s;", "heavy"),
    "inline": ("inline __global__ void {bounds} heavy", "out[i] = s;", "heavy"),
    "weak": ("__attribute__((weak)) __global__ void {bounds} heavy", "out[i] = s;", "heavy"),
    "anonymous namespace": ("namespace {{ __global__ void {bounds} heavy", "out[i] = s;", "heavy"),
    "template": ("template <int N> __global__ void {bounds} heavy", "out[i] = s + N;", "heavy<3>"),
    "template of a type": ("template <class T> __global__ void {bounds} heavy", "out[i] = T(s);", "heavy<float>"),
    "unused": ('extern "C" __global__ void {bounds} heavy', "out[i] = s;", ""),
    "function": ("__device__ __noinline__ float heavy", "return s;", "call"),
    "static function": ("static __device__ __noinline__ float heavy", "return s;", "call"),
    "pointer to a function": ("__device__ __noinline__ float heavy", "return s;", "pointer"),
}


def spilling_kernels(place: Place, chance: random.Random, harmless: bool) -> Row:
    """A kernel or function spills, and the launch plan does not name it: whatever its linkage, the gate sees it, unless
    nothing launches it, which the gate says."""
    linkage, (head, end, call) = chance.choice([*_KERNELS.items()])
    bounds = chance.choice(("__launch_bounds__(1024, 2)", "__launch_bounds__(512, 4)", "__maxnreg__(32)"))
    values = 4 if harmless else chance.choice((48, 56, 64))
    source = place.suite / "scale.cu"
    if harmless and call in ("call", "pointer"):  # a call saves registers
        linkage, (head, end, call) = "C", _KERNELS["C"]
    text = head.format(bounds=bounds) + _ARGUMENTS + _BODY.format(values=values, end=end)
    text += "}\n" * (linkage == "anonymous namespace")
    if call in ("call", "pointer"):
        name = "heavy" if call == "call" else "chosen"
        text += f"__device__ float (*chosen){_ARGUMENTS} = heavy;\n" * (call == "pointer")
        text += f'extern "C" __global__ void {bounds} caller{_ARGUMENTS} {{ '
        text += f"out[threadIdx.x] = {name}(x, out, factor, count); }}\n"
        call = "caller"
    head = 'extern "C" __global__ void scale_kernel'
    place.edit(source, head, text + head)
    if call:
        started = f"{call}<<<1, 256, 0, stream>>>(nullptr, nullptr, 1.0f, 1);\n  return flashcore::run("
        place.edit(source, "return flashcore::run(", started)
    place.edit(place.manifest, 'documents = ["book"]\n', "")
    answer = static(place)
    if linkage == "unused" and not harmless and answer.code == 0 and "left out: plain/heavy" in answer.out:
        return f"{linkage}, {bounds}, {values} values", "left", "no kernel of the variant, and named as left out"
    return f"{linkage}, {bounds}, {values} values", *seen(answer, harmless)
