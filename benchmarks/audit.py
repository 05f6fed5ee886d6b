"""Compares ``flashcore audit`` with cuobjdump and readelf, kernel by kernel: ``python -m benchmarks.audit FILE...``

FILE is a wheel, a library, a cubin, or a folder of them. Of every kernel, registers, stack, shared memory and constant
bytes are compared with ``cuobjdump -res-usage``, and code bytes with ``readelf``. Of the kernels in a sample of the
cubins, barriers, parameters, launch bounds and clusters are compared with ``cuobjdump -elf``. Kernels of unmeasured
resources are counted instead. Each FILE is also audited by the command itself, for time and memory.

Exit code 1 if a value differs, or a kernel is neither listed nor named as unreadable.
"""

from __future__ import annotations

import argparse
import math
import re
import subprocess
import sys
import tempfile
import zipfile
from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from benchmarks import raw
from flashcore.errors import CapabilityError, Exit
from flashcore.features.audit import containers
from flashcore.features.audit.inventory import inventory
from flashcore.readers import cubin

#: Arch and mangled name of a kernel → what a tool gives for it, or for each kernel of that name.
Values = defaultdict[tuple[str, str], set[tuple[Any, ...]]]
RESOURCES = ("registers", "stack_bytes", "static_smem", "constant_bytes")
SIZES = ("code_bytes",)
DEMANDS = ("barriers", "parameter_bytes", "max_threads", "block", "cluster", "max_cluster")
_ELF = b"\x7fELF"
_BATCH = 200  # cubins per call of readelf
_EXAMPLES = 5
_MEASURE = """
import resource, subprocess, sys, time
begin = time.monotonic()
subprocess.run(sys.argv[1:], stdout=subprocess.DEVNULL)
use = resource.getrusage(resource.RUSAGE_CHILDREN)
print(time.monotonic() - begin, use.ru_utime + use.ru_stime, use.ru_maxrss)
"""


def main(argv: Sequence[str] | None = None) -> int:
    """Measures and prints; gives the exit code."""
    return raw.main(__file__, __doc__, arguments, measure, table, argv, verdict)


def arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("files", nargs="*", metavar="FILE", help="wheels, libraries, cubins, folders")
    parser.add_argument("--cuobjdump", nargs="+", default=["cuobjdump"], metavar="PROGRAM",
                        help="the first that can read a file is used")  # fmt: skip
    parser.add_argument("--sample", type=int, default=100, metavar="N", help="cubins per library that -elf decodes")


def measure(options: argparse.Namespace) -> dict[str, Any]:
    """For each file its size, the audit's time and memory, and what differs in its binaries."""
    results = {}
    for name in options.files:
        file = Path(name)
        cost = audited(file)
        with tempfile.TemporaryDirectory() as folder:
            binaries = [compared(path, options) for path in binaries_of(file, Path(folder))]
        counts = Counter[str]()
        for binary in binaries:
            counts.update(binary["counts"])
        results[file.name] = {
            "bytes": sum(p.stat().st_size for p in ([file] if file.is_file() else file.rglob("*")) if p.is_file()),
            **cost,
            "archs": sorted({arch for binary in binaries for arch in binary["archs"]}),
            **counts,
            "differing": {binary["name"]: binary["differing"] for binary in binaries if binary["differing"]},
        }
    return {"machine": raw.machine(), "files": results}


def audited(file: Path) -> dict[str, float]:
    """Time and memory of ``flashcore audit``; the memory includes the pages of the file that it has mapped."""
    # A small process starts it: a child's peak includes what its parent had when it was started.
    command = [sys.executable, "-c", _MEASURE, sys.executable, "-m", "flashcore", "audit", str(file)]
    seconds, cpu_seconds, kib = map(float, subprocess.run(command, capture_output=True, check=True).stdout.split())
    return {"seconds": round(seconds, 2), "cpu_seconds": round(cpu_seconds, 2), "peak_mib": round(kib / 1024, 1)}


def binaries_of(file: Path, folder: Path) -> Iterator[Path]:
    """The ELF files of a folder or an archive, which is extracted."""
    if file.is_dir():
        for path in sorted(p for p in file.rglob("*") if p.is_file()):
            yield from binaries_of(path, folder)
    elif zipfile.is_zipfile(file):
        with zipfile.ZipFile(file) as archive:
            for member in archive.namelist():
                with archive.open(member) as stream:
                    is_elf = stream.read(4) == _ELF
                if is_elf:
                    path = Path(archive.extract(member, folder))
                    yield path
                    path.unlink()
    else:
        with file.open("rb") as stream:
            is_elf = stream.read(4) == _ELF
        if is_elf:
            yield file


def compared(file: Path, options: argparse.Namespace) -> dict[str, Any]:
    """The differences between a binary's audit and the tools' output."""
    content = inventory([file])
    differing: dict[str, list[str]] = {}
    with tempfile.TemporaryDirectory() as folder:
        extracted = cubins(file, Path(folder), options.cuobjdump)
        usage = usages(file, extracted, options.cuobjdump)
        others = elsewhere(
            file, {(k.arch.rstrip("f"), k.content.name) for k in content.kernels} - {*usage}, Path(folder)
        )
        for arch, path in others:
            for key, values in usages(path, [(arch, path)], options.cuobjdump).items():
                usage[key] |= values
        extracted += others
        sample = extracted[:: math.ceil(len(extracted) / options.sample) or 1]
        sizes = code_sizes(extracted)
        by_tool = {
            RESOURCES: {key: values for key, values in usage.items() if key in sizes},
            SIZES: sizes,
            DEMANDS: demands(sample, options.cuobjdump),
        }
    unmeasured = {(k.arch.rstrip("f"), k.content.name) for k in content.kernels if k.content.missing}
    for names, expected in by_tool.items():
        listed = Values(set)
        for kernel in content.kernels:
            key = (kernel.arch.rstrip("f"), kernel.content.name)  # cuobjdump does not print the family's letter
            listed[key].add(tuple(getattr(kernel.content, name) for name in names))
        for key in unmeasured if names is not SIZES else ():
            listed.pop(key, None)
            expected.pop(key, None)
        lines = [
            f"{key}: {listed.get(key)} instead of {values}"
            for key, values in expected.items()
            if not (values <= listed[key] if names is DEMANDS else values == listed[key])
        ]
        if names is not DEMANDS:
            lines += [f"{key}: not in the tool's output" for key in listed if key not in expected]
        if lines:
            differing[", ".join(names)] = lines
    counts = {
        "binaries": int(bool(content.kernels)),
        "kernels": len(content.kernels),
        "unmeasured": len(unmeasured),
        "unreadable": len(content.unread),
        "cubins_in_other_sections": len(others),
        "device_functions": len(usage.keys() - sizes.keys()),
        **{f"compared_{names[0]}": len(expected) for names, expected in by_tool.items()},
    }
    return {
        "name": file.name,
        "archs": sorted({kernel.arch for kernel in content.kernels}),
        "counts": counts,
        "differing": {
            name: {"kernels": len(lines), "examples": lines[:_EXAMPLES]} for name, lines in differing.items()
        },
    }


def elsewhere(file: Path, kernels: Collection[tuple[str, str]], folder: Path) -> list[tuple[str, Path]]:
    """The cubins of these kernels, as :func:`cubins` gives them: those of sections that cuobjdump does not search."""
    result: list[tuple[str, Path]] = []
    for code in containers.read(file) if kernels else ():
        if code.kind == "cubin" and isinstance(code.content, bytes):
            arch = code.arch.rstrip("f")
            if any((arch, k.name) in kernels for k in cubin.parse(code.content, code.arch, code.place).kernels):
                path = folder / f"other.{len(result)}.{arch}.cubin"
                path.write_bytes(code.content)
                result.append((arch, path))
    return result


def output(programs: Iterable[str], *options: str | Path, cwd: Path | None = None) -> str:
    """The output of the first program that can read the file.

    Raises:
        CapabilityError: none can.
    """
    errors = []
    for program in programs:
        try:
            result = subprocess.run([program, *options], capture_output=True, text=True, cwd=cwd, errors="replace")
        except OSError as error:
            errors.append(str(error))
            continue
        if not result.returncode or "does not contain device code" in result.stderr:
            return result.stdout
        errors.append(f"{program}: {result.stderr[-200:]}")
    raise CapabilityError("\n".join(errors), "pip install nvidia-cuda-cuobjdump, and name it: --cuobjdump PROGRAM")


def cubins(file: Path, folder: Path, programs: Sequence[str]) -> list[tuple[str, Path]]:
    """The arch and the path of each cubin in a binary, which is extracted to a folder."""
    with file.open("rb") as stream:
        if stream.read(20)[18:20] == (190).to_bytes(2, "little"):
            head = output(programs, "-elf", file)[:500]
            return [("sm_" + "".join(re.findall(r"sm=(\w+)", head)), file)]
    output(programs, "-xelf", "all", file.absolute(), cwd=folder)
    return [(path.name.split(".")[-2], path) for path in sorted(folder.iterdir())]


def usages(file: Path, cubins: Sequence[tuple[str, Path]], programs: Sequence[str]) -> Values:
    """:data:`RESOURCES` of each kernel by ``cuobjdump -res-usage``."""
    values, name = Values(set), ""
    arch = cubins[0][0] if cubins else ""
    for line in output(programs, "-res-usage", file).splitlines():
        if line.startswith("arch = "):
            arch = line[7:]
        elif line.startswith(" Function "):
            name = line[10:-1]
        elif line.startswith("  REG:"):
            usage = {key: int(number) for key, number in re.findall(r"(\S+):(\d+)", line)}
            constants = sum(number for key, number in usage.items() if key.startswith("CONSTANT["))
            reserved = cubin.RESERVED_SMEM if int(arch[3:].rstrip("af")) >= 90 else 0
            shared = max(usage["SHARED"] - reserved, 0)
            values[arch, name].add((usage["REG"], usage.get("STACK"), shared, constants))
    return values


def code_sizes(cubins: Sequence[tuple[str, Path]]) -> Values:
    """:data:`SIZES` of each kernel by readelf."""
    values = Values(set)
    for begin in range(0, len(cubins), _BATCH):
        batch = {str(path): arch for arch, path in cubins[begin : begin + _BATCH]}
        arch, sizes, kernels = "", dict[str, int](), list[str]()
        lines = output(["readelf"], "-SW", *batch, *list(batch)[:1]).splitlines()  # names the files if several
        for line in [*lines, "File: "]:
            if line.startswith("File: "):
                for name in kernels:
                    values[arch, name].add((sizes.get(name, 0),))
                arch, sizes, kernels = batch.get(line[6:], ""), {}, []
            elif match := re.match(r" *\[ *\d+\] \.(text|nv\.constant0)\.(\S+) +\w+ +\w+ +\w+ (\w+)", line):
                if match[1] == "text":
                    sizes[match[2]] = int(match[3], 16)
                else:
                    kernels.append(match[2])
    return values


def demands(cubins: Iterable[tuple[str, Path]], programs: Sequence[str]) -> Values:
    """:data:`DEMANDS` of each kernel by ``cuobjdump -elf``."""
    values = Values(set)
    for arch, path in cubins:
        flags: dict[str, int] = {}
        attributes: dict[str, dict[str, list[int]]] = {}
        entries = set()  # the symbols that can be launched
        name = attribute = ""
        for line in output(programs, "-elf", path).splitlines():
            if match := re.match(r" +\w+ +\w+ +\w+ +\w+ +\w+ +PROGBITS +(\w+) +\w+ +\w+ +\.text\.(\S+)$", line):
                flags[match[2]] = int(match[1], 16)
            elif match := re.match(r" *0x\w+ +\w+ +\w+ +\w+ +0x10 +\w+ +(\S+)$", line):
                entries.add(match[1])
            elif line.startswith("."):
                name = line.removeprefix(".nv.info.") if line.startswith(".nv.info.") else ""
                attributes |= {name: {}}
            elif line.startswith("\tAttribute:\t"):
                attribute = line.split("\t")[2]
            elif line.startswith("\tValue:\t") and name:
                attributes[name][attribute] = [int(n, 16) for n in re.findall(r"0x\w+", line)]
        for name in entries:
            info = attributes.get(name, {})
            threads, most = info.get("EIATTR_MAX_THREADS"), info.get("EIATTR_MAX_CLUSTER_RANK")
            block, cluster = info.get("EIATTR_REQNTID"), info.get("EIATTR_CTA_PER_CLUSTER")
            values[arch, name].add((
                max(info.get("EIATTR_NUM_BARRIERS", [0])[0], flags[name] >> 20 & 0x7F),
                info.get("EIATTR_CBANK_PARAM_SIZE", [0])[0],
                math.prod(threads) if threads else None,
                tuple(block) if block else None,
                tuple(cluster) if cluster else None,
                most[0] if most else None,
            ))  # fmt: skip
    return values


def table(measured: Mapping[str, Any]) -> list[str]:
    """A line per file: what was compared, what differs, time and memory."""
    lines = [measured["machine"]]
    for name, result in measured["files"].items():
        differing = [
            f"  {binary}: {what}: {kind['kernels']}, as {kind['examples'][0]}"
            for binary, kinds in result["differing"].items()
            for what, kind in kinds.items()
        ]
        lines.append(
            f"{name}: {result['bytes'] / 1e6:.0f} MB, {result['kernels']} kernels in {result['binaries']} binaries for "
            f"{', '.join(result['archs'])}; audited in {result['seconds']:.1f} s ({result['cpu_seconds']:.1f} s CPU), "
            f"{result['peak_mib']:.0f} MiB; compared {result['compared_registers']} resources, "
            f"{result['compared_code_bytes']} sizes, {result['compared_barriers']} launch bounds: "
            f"{len(differing)} kinds of difference, "
            f"{result.get('unmeasured', 'an unknown number')} unmeasured, {result['unreadable']} unreadable; "
            f"{result['cubins_in_other_sections']} cubins lie in sections that cuobjdump does not search"
        )
        lines += differing
    return lines


def verdict(measured: Mapping[str, Any]) -> int:
    """1 if a value differs."""
    return Exit.FAILED if any(file["differing"] for file in measured["files"].values()) else Exit.OK


if __name__ == "__main__":
    sys.exit(main())
