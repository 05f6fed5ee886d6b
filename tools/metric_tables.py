"""Writes the table of a chip's metrics, which tells FlashCore what its GPUs cannot count: ``metric_tables.py CHIP``.

The list comes from ncu, or without ncu from ``libnvperf_host``, the library that ncu uses. That library is in the pip
package ``nvidia-cuda-cupti`` and in CUDA's ``extras/CUPTI``, and needs no GPU. Its lists of AD104 and GA100 equal those
of ``ncu --query-metrics`` (a test compares them).
"""

from __future__ import annotations

import ctypes
import gzip
import os
import re
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

from flashcore.chips.metric_tables.lookup import SUFFIX, TABLES, MetricTable
from flashcore.errors import CapabilityError
from flashcore.machine.ncu import find_ncu, last_lines
from flashcore.machine.toolchain import site_packages, version_of

LIBRARY = "libnvperf_host.so"
PACKAGE = "nvidia-cuda-cupti"

#: In the order of ``NVPW_MetricType``.
_KINDS = ("Counter", "Ratio", "Throughput")
_ROW = re.compile(r"^(?P<name>[A-Za-z]\S*__\S+)\s+(?P<kind>Counter|Ratio|Throughput)\s+(?P<unit>\S+)\s")


def parse_query(text: str, chip: str) -> MetricTable:
    """Parses the output of ``ncu --query-metrics``, without wrapped descriptions.

    Raises:
        CapabilityError: the text has no metric.
    """
    kinds = {m["name"]: m["kind"] for line in text.splitlines() if (m := _ROW.match(line))}
    if not kinds:
        raise CapabilityError(
            f"ncu --query-metrics --chips {chip}: expected a list of metrics, found: {last_lines(text)}",
            "name a chip of `ncu --list-chips`, or use another ncu",
        )
    return MetricTable(chip, kinds)


def write(chip: str, ncu: Path | None = None) -> Path:
    """Writes a chip's table among those of the package; returns its path.

    Args:
        ncu: Nsight Compute's command; the installed one if ``None``.

    Raises:
        CapabilityError: neither ncu nor its library is installed, or it does not know the chip.
    """
    table = listed(chip, ncu)
    file = TABLES / f"{chip}{SUFFIX}"
    file.write_bytes(packed(table))
    return file


def listed(chip: str, ncu: Path | None = None) -> MetricTable:
    """A chip's metrics, as ncu or its library lists them."""
    try:
        ncu = ncu or find_ncu()
    except CapabilityError as no_ncu:
        try:
            library = find()
        except CapabilityError as error:
            raise CapabilityError(f"{no_ncu.what}; {error.what}", error.hint) from None
        return MetricTable(chip, metrics(library, chip), name_of(library))
    argv = [str(ncu), "--query-metrics", "--chips", chip]
    try:
        done = subprocess.run(argv, capture_output=True, text=True, errors="replace", timeout=120, check=False)
    except (OSError, subprocess.TimeoutExpired) as error:
        raise CapabilityError(f"{ncu} gave no list of metrics: {error}", "put another ncu on PATH") from None
    return parse_query(done.stdout if done.returncode == 0 else done.stdout + done.stderr, chip)


def packed(table: MetricTable) -> bytes:
    """A table's file; the same metrics give the same bytes."""
    rows = [f"{name} {kind}" for name, kind in sorted(table.metrics.items())]
    lines = [f"# flashcore metric table 1: {table.chip}, by {table.source}", *rows]
    return gzip.compress("\n".join([*lines, ""]).encode(), compresslevel=9, mtime=0)


def find() -> Path:
    """The library of this environment's pip package, or of the CUDA toolkit.

    Raises:
        CapabilityError: it is not installed.
    """
    for path in _candidates():
        if path.is_file():
            return path
    raise _no_library("no libnvperf_host.so found, which lists chips' metrics")


def _no_library(what: str) -> CapabilityError:
    return CapabilityError(what, "pip install nvidia-cuda-cupti==13.0.85, or install Nsight Compute")


def _candidates() -> Iterator[Path]:
    for site in site_packages():
        yield from sorted(site.glob(f"nvidia/cu*/lib/{LIBRARY}"), reverse=True)
    for root in filter(None, (os.environ.get("CUDA_HOME"), "/usr/local/cuda")):
        yield Path(root) / "extras" / "CUPTI" / "lib64" / LIBRARY


def name_of(library: Path) -> str:
    """The library as the source of a table, with its package's version if it is from pip."""
    pip = any(library.is_relative_to(site) for site in site_packages())
    version = version_of(PACKAGE) if pip else None
    return f"{LIBRARY} of {PACKAGE} {version}" if version else f"{LIBRARY} of {library.parent}"


def metrics(library: Path, chip: str) -> dict[str, str]:
    """The kind of each metric of a chip such as ``ga102``: ``Counter``, ``Ratio`` or ``Throughput``.

    Raises:
        CapabilityError: the library does not load, or does not know the chip.
    """
    try:
        nvperf = ctypes.CDLL(str(library))
    except OSError as error:
        raise _no_library(f"{library}: cannot be loaded: {error}") from None

    def call(function: str, *members: int) -> Sequence[int]:
        """Calls a function of ``nvperf_host.h`` or ``nvperf_cuda_host.h``, and returns its structure's members.

        A structure begins with its size and a null pointer. All members are eight bytes wide, or padded to that.
        """
        count = 2 + len(members)
        structure = (ctypes.c_size_t * count)(8 * count, 0, *members)
        try:
            status = getattr(nvperf, function)(structure)
        except AttributeError:
            raise _no_library(f"{library}: expected {function}, found no such function") from None
        if status != 0:
            raise CapabilityError(
                f"{library}: expected a list of the metrics of {chip}, found status {status} of {function}",
                "name a chip that it knows, as ga102, or install a newer one",
            )
        return structure[2:]

    text = ctypes.create_string_buffer(chip.upper().encode())
    name = ctypes.addressof(text)
    call("NVPW_InitializeHost")
    *_, size = call("NVPW_CUDA_MetricsEvaluator_CalculateScratchBufferSize", name, 0, 0)
    scratch = ctypes.create_string_buffer(size)  # has the names, so it must outlive them
    *_, evaluator = call("NVPW_CUDA_MetricsEvaluator_Initialize", ctypes.addressof(scratch), size, name, 0, 0, 0, 0)
    kinds: dict[str, str] = {}
    for index, kind in enumerate(_KINDS):
        *_, names, begins, count = call("NVPW_MetricsEvaluator_GetMetricNames", evaluator, index, 0, 0, 0)
        for begin in (ctypes.c_size_t * count).from_address(begins):
            kinds[ctypes.string_at(names + begin).decode()] = kind
    return kinds


if __name__ == "__main__":
    for _chip in sys.argv[1:]:
        print(write(_chip))
