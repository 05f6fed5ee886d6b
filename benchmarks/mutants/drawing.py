"""The mutants: each group's places and operators, and a sample of them."""

from __future__ import annotations

import json
import random
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from fnmatch import fnmatch
from pathlib import Path

from benchmarks import raw
from benchmarks.mutants import answers, gate, operators
from flashcore.build import nvcc_command
from flashcore.records import lookup, store
from flashcore.suites import load

SUITE = raw.ROOT / "kernels" / "attention"
#: How many of each group, of the whole sample.
SHARES = {
    "device": 60, "header": 36, "host": 26, "attributes": 24, "flags": 14, "environment": 28, "manifest": 70,
    "problem": 20, "baseline": 28, "record": 50, "answer": 52,
}  # fmt: skip
WHOLE = sum(SHARES.values())
_LAUNCHERS = {
    "scalar_row": "1_scalar/scalar_row.cu",
    "fewer_syncs": "3_stripes/fewer_syncs.cu",
    "mma_registers": "5_registers/mma_registers.cu",
    "tma_split_keys_pdl": "7_mma_split_keys/tma_split_keys.cu",
}
_HEADERS = {
    "scalar_row": ("head.cuh", "softmax.cuh", "scalar_softmax.cuh", "reduce.cuh"),
    "mma_registers": ("mma_stripe.cuh", "mma.cuh", "ldmatrix.cuh", "async_copy.cuh", "swizzle.cuh", "head.cuh"),
    "fewer_syncs": ("stripe.cuh", "async_stages.cuh", "forward.cuh"),
    "tma_split_keys_pdl": ("tensor_copy.cuh", "barrier.cuh", "part.cuh"),
}
_TABLES = ("variant.", "problem.forward", "shape.", "[budget", "[waiver", "gate")


@dataclass(frozen=True, slots=True)
class Mutant:
    """One mutation, as plain data.

    ``file`` is relative to the workplace, with its whole new ``text``; of a file of the record ``seed`` says where it
    changes. ``env`` or ``flags`` are set instead. ``variants`` are those to build and judge.
    """

    group: str
    place: str
    operator: str
    before: str
    after: str
    variants: tuple[str, ...] = gate.VARIANTS
    file: str = ""
    text: str | None = None
    seed: int = 0
    env: tuple[tuple[str, str], ...] = ()
    flags: tuple[str, ...] = ()


def newest_run() -> str:
    """The id of the newest published run of the suite."""
    for run in lookup.all_runs(raw.ROOT / "profiles"):
        if json.loads((run / store.HEADER).read_bytes())["suite"]["name"] == "attention":
            return run.name
    raise SystemExit("profiles: expected a recorded run of the attention suite, found none")


RUN = newest_run()


# --- making them ------------------------------------------------------------------------------------


def drawn(sample: int, seed: int, only: Sequence[str]) -> list[Mutant]:
    """The mutants of each group, as many as its share."""
    made: list[Mutant] = []
    for group, share in SHARES.items():
        if group not in only:
            continue
        chance = random.Random(f"{seed} {group}")
        everything = _MAKERS[group]()
        count = min(len(everything), round(sample * share / WHOLE))
        made += _spread(everything, count, chance)
    return made


def _spread(everything: Sequence[Mutant], count: int, chance: random.Random) -> list[Mutant]:
    """Drawn so that each operator of each file gets its turn: what is many in a text is not most of the sample."""
    kinds: dict[tuple[str, str], list[Mutant]] = {}
    for mutant in everything:
        kinds.setdefault((mutant.file, mutant.operator), []).append(mutant)
    for kind in kinds.values():
        chance.shuffle(kind)
    order = list(kinds.values())
    chance.shuffle(order)
    mutants: list[Mutant] = []
    while len(mutants) < count and any(order):
        for kind in order:
            if kind and len(mutants) < count:
                mutants.append(kind.pop())
    return mutants


def _of_code(group: str, variant: str, file: str, source: Path, start: int = 0, end: int | None = None) -> list[Mutant]:
    text = source.read_text(encoding="utf-8")
    return [
        Mutant(
            group, f"{file.removeprefix('suite/')}:{e.line}", e.operator, e.before, e.after, (variant,), file, e.text
        )
        for e in operators.code(text, start, end)
    ]


def _launcher(text: str) -> int:
    """The offset at which a kernel's source begins its host code: its plan."""
    places = [
        at for word in ("flashcore::Plan plan(", "constexpr Forward", "const Forward") if (at := text.find(word)) > 0
    ]
    return min(places, default=len(text))


def _device() -> list[Mutant]:
    made = []
    for variant, name in _LAUNCHERS.items():
        text = (SUITE / name).read_text(encoding="utf-8")
        made += _of_code("device", variant, f"suite/{name}", SUITE / name, 0, _launcher(text))
    return made


def _host() -> list[Mutant]:
    made = []
    for variant, name in _LAUNCHERS.items():
        text = (SUITE / name).read_text(encoding="utf-8")
        made += _of_code("host", variant, f"suite/{name}", SUITE / name, _launcher(text))
    made += _of_code(
        "host", "fewer_syncs", "suite/include/attention/forward.cuh", SUITE / "include/attention/forward.cuh"
    )
    return made


def _attributes() -> list[Mutant]:
    """Mutants of the header that all launches use."""
    header = nvcc_command.HARNESS_INCLUDE / "flashcore" / "launch.h"
    text = header.read_text(encoding="utf-8")
    file = "include/flashcore/launch.h"
    place = text.index("struct Launch {")
    return _of_code("attributes", "tma_split_keys_pdl", file, header, place, text.index("// The C interface"))


def _headers() -> list[Mutant]:
    return [
        m
        for variant, names in _HEADERS.items()
        for name in names
        for m in _of_code("header", variant, f"suite/include/attention/{name}", SUITE / "include/attention" / name)
    ]


def _flags() -> list[Mutant]:
    made = []
    own = load.load(SUITE).variants["mma_registers"].flags
    flags = [*own, *nvcc_command.FLAGS]
    for i, flag in enumerate(flags):
        if flag not in ("-Xptxas", "-Xcompiler", "-v", "-fPIC"):
            made.append(("drop flag", flag, [*flags[:i], *flags[i + 1 :]]))
        if flag.startswith("-O"):
            made += [("change number", f"-O{n}", [*flags[:i], f"-O{n}", *flags[i + 1 :]]) for n in range(3)]
    added = ("--fmad=false", "-maxrregcount=40", "-G", "--ftz=false", "--prec-div=true", "-DNDEBUG", "-DUNUSED=1",
             "--extra-device-vectorization", "-Xptxas=-O1", "-Xcompiler=-O1", "-ewp", "-w")  # fmt: skip
    made += [("add flag", flag, [*flags, flag]) for flag in added]
    variant = ("mma_registers",)
    return [Mutant("flags", f"flags {f}", op, "", f, variant, flags=tuple(new)) for op, f, new in made]


def _environment() -> list[Mutant]:
    flags = ("-O1", "-DSWIZZLE=1", "-DSTAGES=3", "-maxrregcount=40", "--fmad=false", "-DUNUSED=1", "-w", "-G",
             "-Ievil", "-include evil/forced.h", "-Xcompiler -O0", "-std=c++20")  # fmt: skip
    made = [(name, value) for name in ("NVCC_APPEND_FLAGS", "NVCC_PREPEND_FLAGS") for value in flags]
    made += [(name, "evil") for name in ("CPATH", "CPLUS_INCLUDE_PATH", "C_INCLUDE_PATH", "INCLUDES", "COMPILER_PATH")]
    made += [("PTXAS_FLAGS", "-O1"), ("CUDAFE_FLAGS", "--no_exceptions"), ("NVVM_FLAGS", "-opt=1")]
    made += [("CUDA_ARCH", "8.0"), ("CUDA_ARCH", "7.5"), ("CUDA_ARCH", ""), ("DEBUG", "1"), ("DEBUG", "yes"),
             ("SOURCE_DATE_EPOCH", "1"), ("NVCC_CCBIN", "g++"), ("DEPENDENCIES_OUTPUT", "stray"), ("MAX_JOBS", "1"),
             ("LC_ALL", "C"), ("TMPDIR", "."), ("CUDA_VISIBLE_DEVICES", "0")]  # fmt: skip
    return [
        Mutant("environment", name, "set", "", f"{name}={value}", ("mma_registers",), env=((name, value),))
        for name, value in made
    ]


def _manifest() -> list[Mutant]:
    made = []
    for path in sorted(SUITE.rglob("*.toml")):
        text = path.read_text(encoding="utf-8")
        tables = _tables(text)
        foreign = _foreign(text)

        def wanted(i: int, line: str, tables: Mapping[int, str] = tables, foreign: set[int] = foreign) -> bool:
            table = tables.get(i, "")
            if i in foreign:
                return False
            of_variant = table.removeprefix("variant.") in gate.VARIANTS
            return (not table or table.startswith(_TABLES)) and (not table.startswith("variant.") or of_variant)

        file = f"suite/{path.relative_to(SUITE)}"
        made += [
            Mutant(
                "manifest", f"{path.relative_to(SUITE)}:{e.line}", e.operator, e.before, e.after, file=file, text=e.text
            )
            for e in operators.lines(text, wanted)
        ]
    return made


def _tables(text: str) -> dict[int, str]:
    """Line → the table it is in."""
    tables, name = {}, ""
    for i, line in enumerate(text.split("\n")):
        if line.startswith("["):
            name = line.strip().removeprefix("[").removesuffix("]")
        tables[i] = name
    return tables


def _foreign(text: str) -> set[int]:
    """The lines of tables that are about other variants or problems than those of the sample."""
    shared: set[int] = set()
    lines = text.split("\n")
    starts = [i for i, line in enumerate(lines) if line.startswith("[")]
    for a, b in zip(starts, [*starts[1:], len(lines)], strict=True):
        block = "\n".join(lines[a:b])
        if named := re.search(r"^variants = \[(.*)\]", block, re.M):
            globs = re.findall(r'"([^"]*)"', named[1])
            if not any(fnmatch(v, g) for v in gate.VARIANTS for g in globs):
                shared |= set(range(a, b))
        if block.startswith("[shape.") and "problem =" in block:
            shared |= set(range(a, b))
    return shared


def _problem() -> list[Mutant]:
    return [
        Mutant("problem", m.place, m.operator, m.before, m.after, ("mma_registers",), m.file, m.text)
        for m in _of_code("problem", "mma_registers", "suite/problem.py", SUITE / "problem.py")
    ]


def _baseline() -> list[Mutant]:
    def wanted(i: int, line: str) -> bool:
        return i < 5 or (line.split(" ")[0] in gate.VARIANTS and gate.ARCH in line)

    text = (SUITE / "baseline.txt").read_text(encoding="utf-8")
    return [
        Mutant(
            "baseline", f"baseline.txt:{e.line}", e.operator, e.before, e.after, file="suite/baseline.txt", text=e.text
        )
        for e in operators.lines(text, wanted)
    ]


def _record() -> list[Mutant]:
    """Places in the files of the run, by number: the worker looks at what stands there."""
    files = ("facts.json.gz", "run.json", "samples.json.gz")
    kinds = ("cut short", "empty", "absent", "bit flipped", "row dropped", "row doubled", "value changed",
             "value changed", "subject changed", "key changed", "outcome changed", "header changed")  # fmt: skip
    return [
        Mutant("record", file, kind, "", "", file=f"profiles/{RUN}/{file}", seed=100 * k + n)
        for file in files
        for k, kind in enumerate(kinds)
        for n in range(12)
        if file != "samples.json.gz" or k < 4
        if (file == "facts.json.gz") == (4 <= k <= 8) or k < 4
    ]


def _answers() -> list[Mutant]:
    return [Mutant("answer", "output", name, "", name) for name, _, _ in answers.mutants()]


_MAKERS: dict[str, Callable[[], list[Mutant]]] = {
    "device": _device, "header": _headers, "host": _host, "attributes": _attributes, "flags": _flags,
    "environment": _environment, "manifest": _manifest, "problem": _problem, "baseline": _baseline, "record": _record,
    "answer": _answers,
}  # fmt: skip
