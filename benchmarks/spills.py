"""Compares the spill bytes that an audit reads from cubins with those that ``ptxas -v`` prints, for generated kernels.

    python -m benchmarks.spills PTXAS... [--archs sm_80 sm_90a] [--ptx FILE...]

Each compiler compiles the same kernels for each arch that it supports.
"""

from __future__ import annotations

import argparse
import os
import re
import sys
import tempfile
from collections import Counter
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from benchmarks import raw
from flashcore.build.static_facts import ptxas_spills
from flashcore.errors import UsageError
from flashcore.features.audit.inventory import inventory
from flashcore.machine import toolchain
from flashcore.model.cause import Cause

ARCHS = ("sm_61", "sm_80", "sm_90a", "sm_100a", "sm_120")
PLACES = ("line", "loop", "array", "called", "recursive")
_REGISTERS = 40
_TYPES = {"f32": (4, 1), "f64": (8, 1), "f32x4": (4, 4)}  # bytes of a value, and values of one access
_HEAD = ".version 7.8\n.target sm_61\n.address_size 64\n"
_PARAMETERS = {"a": "b64", "c": "b64", "n": "b32"}
_UNSUPPORTED = re.compile(r"not defined for option|Unsupported|does not support")


def ptx() -> str:
    """Kernels that hold more values than registers: in straight code, in a loop, beside an array, in functions."""
    return _HEAD + "".join(_kernel(kind, n, place) for kind in _TYPES for n in (48, 160) for place in PLACES)


def _kernel(kind: str, values: int, place: str) -> str:
    size, width = _TYPES[kind]
    of, name, step = f"f{8 * size}", f"{kind}_{values}_{place}", size * width
    declared = "".join(f".param .{t} {p}; " for p, t in _PARAMETERS.items()).rstrip("; ").replace(";", ",")
    groups = [", ".join(f"%v{i + k}" for k in range(width)) for i in range(0, values, width)]
    several = (f".v{width}.{of}", "{", "}") if width > 1 else (f".{of}", "", "")

    def access(opcode: str, at: int, group: str) -> str:
        values, place = f"{several[1]}{group}{several[2]}", f"[%{'a' if opcode == 'ld' else 'c'}+{at * step * 128}]"
        operands = f"{values}, {place}" if opcode == "ld" else f"{place}, {values}"
        return f"{opcode}.global{several[0]} {operands};"

    call = "".join(f".param .{t} {p}_; st.param.{t} [{p}_], %{p}; " for p, t in _PARAMETERS.items())
    call = f"{{ {call} call.uni {name}_function, (a_, c_, n_); }}"
    load = "".join(f".reg .{t} %{p}; ld.param.{t} %{p}, [{p}]; " for p, t in _PARAMETERS.items())
    body = [
        f".reg .{of} %v<{values}>, %x; .reg .b64 %l; .reg .b32 %i, %w; .reg .pred %p;",
        load,
        f"mov.u32 %w, %tid.x; mul.wide.u32 %l, %w, {step}; add.u64 %a, %a, %l; add.u64 %c, %c, %l;",
        *(access("ld", at, group) for at, group in enumerate(groups)),
    ]
    if place == "recursive":
        body.append(f"sub.u32 %n, %n, 1; setp.eq.u32 %p, %n, 0; @%p bra END; {call}\nEND:")
    if place == "loop":
        body.append("mov.u32 %i, 0;\nAGAIN:")
    for at in range(values):
        body.append(f"fma.rn.{of} %v{at}, %v{at}, %v{(at * 7 + 3) % values}, %v{(at * 5 + 1) % values};")
    if place == "loop":
        body.append("bar.sync 0; add.u32 %i, %i, 1; setp.lt.u32 %p, %i, %n; @%p bra AGAIN;")
    if place == "array":
        body.append(
            f".local .align 16 .b8 frame[256]; mov.u64 %l, frame; st.local.{of} [%l], %v0; st.local.{of} [%l+8], %v1;"
            f"and.b32 %w, %n, 8; cvt.u64.u32 %a, %w; add.u64 %l, %l, %a; ld.local.{of} %x, [%l]; add.{of} %v0, %v0, %x;"
        )
    body += [access("st", at, group) for at, group in enumerate(groups)]
    code = "\n".join([*body, "ret;"])
    if place not in ("called", "recursive"):
        return f".visible .entry {name}({declared}) {{\n{code}\n}}\n"
    return (
        f".func {name}_function({declared}) {{\n{code}\n}}\n"
        f".visible .entry {name}({declared}) {{ {load} {call} ret; }}\n"
    )


def compared(ptxas: Path, arch: str, source: Path) -> list[str]:
    """For each kernel of a PTX file: compiler, arch, name, the bytes of spill stores and loads that ptxas prints, and
    those that the audit reads, if it does. Empty if the compiler does not support the arch.

    Raises:
        UsageError: the file does not compile.
    """
    with tempfile.TemporaryDirectory() as folder:
        made = Path(folder) / "code.cubin"
        options = ["-v", f"-arch={arch}", f"-maxrregcount={_REGISTERS}"]
        run = toolchain.ask([ptxas, *options, source, "-o", made])
        if run.returncode and _UNSUPPORTED.search(run.stderr):
            return []
        if run.returncode:
            raise UsageError(run.stderr)
        printed = ptxas_spills(run.stderr)
        version = toolchain.ask([ptxas, "--version"]).stdout.partition(", V")[2].split()[0]
        return [
            " ".join(map(str, (version, arch, kernel.content.name, *printed[kernel.content.name],
                               *(() if isinstance(kernel.spills, Cause) else kernel.spills))))
            for kernel in inventory([made]).kernels
        ]  # fmt: skip


def main(argv: Sequence[str] | None = None) -> int:
    """Exits 1 if a value differs."""
    return raw.main(
        __file__, __doc__, arguments, measure, table, argv, lambda measured: int("differs" in outcomes(measured))
    )


def arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("compilers", nargs="*", metavar="PTXAS")
    parser.add_argument("--archs", nargs="+", default=ARCHS, metavar="ARCH")
    parser.add_argument("--ptx", nargs="+", default=[], metavar="FILE", help="more kernels")


def measure(options: argparse.Namespace) -> dict[str, Any]:
    """Compiles everything on all cores."""
    with tempfile.TemporaryDirectory() as folder, ThreadPoolExecutor(os.cpu_count()) as pool:
        generated = Path(folder) / "code.ptx"
        generated.write_text(ptx(), encoding="utf-8")
        sources = [generated, *map(Path, options.ptx)]
        each = [(Path(c), arch, source) for c in options.compilers for arch in options.archs for source in sources]
        options.compilers = len(options.compilers)  # not their paths on this machine
        return {"kernels": [row for rows in pool.map(lambda one: compared(*one), each) for row in rows]}


def outcomes(measured: raw.Results) -> dict[str, Counter[tuple[str, str]]]:
    """Equal, unmeasured or different → (compiler, arch) → the number of kernels."""
    counts: dict[str, Counter[tuple[str, str]]] = {}
    for row in measured["kernels"]:
        version, arch, _, *numbers = row.split()
        how = "unmeasured" if len(numbers) == 2 else "equal" if numbers[:2] == numbers[2:] else "differs"
        counts.setdefault(how, Counter())[version, arch] += 1
    return counts


def table(measured: raw.Results) -> list[str]:
    """A line for each compiler."""
    counts = outcomes(measured)
    places = {tuple(row.split()[:2]) for row in measured["kernels"]}
    lines = []
    for version in sorted({version for version, _ in places}, key=lambda v: tuple(map(int, v.split(".")))):
        archs = [arch for arch in ARCHS if (version, arch) in places]
        texts = [
            f"{arch} {', '.join(f'{n} {how}' for how in sorted(counts) if (n := counts[how][version, arch]))}"
            for arch in archs
        ]
        lines.append(f"ptxas {version:9} {'; '.join(texts)}")
    return lines


if __name__ == "__main__":
    sys.exit(main())
