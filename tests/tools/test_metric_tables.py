"""A chip's list of metrics, from any ncu or from the library that ncu asks."""

from __future__ import annotations

import gzip
import subprocess
import sys
from pathlib import Path

import pytest

from flashcore.chips.metric_tables import lookup
from flashcore.errors import CapabilityError
from flashcore.machine import toolchain
from tools import metric_tables

#: As ncu prints it, wrapped descriptions and all.
QUERY = """Chip gx100
------------------ --------------- --------------- ----------------------------
Metric Name        Metric Type     Metric Unit     Metric Description
------------------ --------------- --------------- ----------------------------
dram__bytes_read   Counter         byte            # of bytes read from DRAM
                                                   see lts__t_bytes Counter
lts__throughput    Throughput      %               L2 throughput
CTC.Triage.ctc__rx Counter         byte            # of bytes
smsp__x_rate       Ratio                           a ratio without a unit
l2__hit            Ratio           proportion      hits
==PROF== Note that these metrics must be appended with a valid suffix before profiling them.
"""


def test_what_ncu_prints_is_read_and_kept() -> None:
    table = metric_tables.parse_query(QUERY, "gx100")
    assert table.metrics == {
        "dram__bytes_read": "Counter",
        "lts__throughput": "Throughput",
        "CTC.Triage.ctc__rx": "Counter",
        "smsp__x_rate": "Ratio",
        "l2__hit": "Ratio",
    }


def ncu(folder: Path, body: str) -> Path:
    program = folder / "ncu"
    program.write_text(f"#!{sys.executable}\nimport sys\n{body}\n")
    program.chmod(0o755)
    return program


def test_a_table_is_learnt_from_any_ncu(tmp_path: Path) -> None:
    (tmp_path / "answer").write_text(QUERY)
    body = (
        "assert sys.argv[1:] == ['--query-metrics', '--chips', 'gx100'], sys.argv\n"
        f"sys.stdout.write(open({str(tmp_path / 'answer')!r}).read())"
    )
    table = metric_tables.listed("gx100", ncu(tmp_path, body))
    assert len(table.metrics) == 5 and table.source == "ncu --query-metrics"


@pytest.mark.parametrize(
    "body", ["sys.exit('==ERROR== unknown chip gx100')", "print('')", "sys.exit(1)", "print('garbage __ Counter')"]
)
def test_an_ncu_that_does_not_know_the_chip_is_said(body: str, tmp_path: Path) -> None:
    with pytest.raises(CapabilityError, match="--chips gx100: expected a list of metrics"):
        metric_tables.listed("gx100", ncu(tmp_path, body))


def test_without_ncu_the_library_that_it_asks_is_asked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def no_ncu() -> Path:
        raise CapabilityError("no Nsight Compute", "install it")

    monkeypatch.setattr(metric_tables, "find_ncu", no_ncu)
    monkeypatch.setattr(metric_tables, "find", lambda: Path("/lib/libnvperf_host.so"))
    monkeypatch.setattr(metric_tables, "metrics", lambda library, chip: {f"{chip}__cycles": "Counter"})
    table = metric_tables.listed("gx100")
    assert table.metrics == {"gx100__cycles": "Counter"}
    assert table.source == "libnvperf_host.so of /lib"

    def no_library() -> Path:
        raise metric_tables._no_library("no libnvperf_host.so found")

    monkeypatch.setattr(metric_tables, "find", no_library)
    with pytest.raises(CapabilityError, match=r"no Nsight Compute; no libnvperf_host.so found.*\n.*nvidia-cuda-cupti"):
        metric_tables.listed("gx100")


@pytest.mark.parametrize("chip", ["ad104", "gb202"])
def test_a_table_is_written_as_committed(chip: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    committed = lookup.TABLES / f"{chip}{lookup.SUFFIX}"
    table = lookup.table(chip)
    monkeypatch.setattr(metric_tables, "listed", lambda *_: table)
    monkeypatch.setattr(metric_tables, "TABLES", tmp_path)
    written = metric_tables.write(chip)
    assert gzip.decompress(written.read_bytes()) == gzip.decompress(committed.read_bytes())


#: As libnvperf_host answers, for a chip GX100 that it knows and any other that it does not.
STAND_IN = r"""
#include <stddef.h>
#include <stdint.h>
#include <string.h>
struct head { size_t size; void *priv; };
struct scratch { struct head h; const char *chip; const void *image; size_t bytes; };
struct made {
  struct head h; char *buffer; size_t bytes; const char *chip; const void *image, *data; size_t n; void *ev;
};
struct names { struct head h; void *ev; uint8_t kind; const char *names; const size_t *begins; size_t count; };
#define IS(p, type) ((p)->h.size == sizeof(struct type) && (p)->h.priv == NULL)
extern "C" int NVPW_InitializeHost(struct head *p) { return p->size == sizeof *p ? 0 : 1; }
extern "C" int NVPW_CUDA_MetricsEvaluator_CalculateScratchBufferSize(struct scratch *p) {
  if (!IS(p, scratch) || strcmp(p->chip, "GX100")) return 14;
  p->bytes = 64;
  return 0;
}
extern "C" int NVPW_CUDA_MetricsEvaluator_Initialize(struct made *p) {
  if (!IS(p, made) || p->bytes != 64 || strcmp(p->chip, "GX100")) return 14;
  memcpy(p->buffer, "sm__a\0sm__b\0sm__rate\0", 21);
  p->ev = p->buffer;
  return 0;
}
extern "C" int NVPW_MetricsEvaluator_GetMetricNames(struct names *p) {
  static const size_t two[] = {0, 6}, one[] = {12};
  if (!IS(p, names)) return 14;
  p->names = (const char *)p->ev;
  p->begins = p->kind ? one : two;
  p->count = p->kind == 0 ? 2 : p->kind == 1 ? 1 : 0;
  return 0;
}
"""


def compiled(folder: Path, source: str) -> Path:
    (folder / "x.cc").write_text(source)
    library = folder / metric_tables.LIBRARY
    paths = [str(library), str(folder / "x.cc")]
    subprocess.run([str(toolchain.find_cxx()), "-shared", "-fPIC", "-o", *paths], check=True)
    return library


def test_the_names_of_each_kind_are_read(tmp_path: Path) -> None:
    library = compiled(tmp_path, STAND_IN)
    assert metric_tables.metrics(library, "gx100") == {"sm__a": "Counter", "sm__b": "Counter", "sm__rate": "Ratio"}
    assert metric_tables.name_of(library) == f"libnvperf_host.so of {tmp_path}"
    with pytest.raises(CapabilityError, match=r"metrics of gx200, found status 14 of .*ScratchBufferSize"):
        metric_tables.metrics(library, "gx200")


def test_another_library_is_said(tmp_path: Path) -> None:
    with pytest.raises(CapabilityError, match="expected NVPW_InitializeHost, found no such function"):
        metric_tables.metrics(compiled(tmp_path, "int x;"), "gx100")
    (tmp_path / "text.so").write_text("no library")
    with pytest.raises(CapabilityError, match="cannot be loaded"):
        metric_tables.metrics(tmp_path / "text.so", "gx100")


@pytest.fixture(scope="module")
def real() -> Path:
    try:
        library = metric_tables.find()
    except CapabilityError as error:
        pytest.skip(f"package: {error}")
    if "13.0.85" not in metric_tables.name_of(library):
        pytest.skip(f"package: {library} is of another release than the committed tables")
    return library


@pytest.mark.parametrize("chip", ["ad104", "ga100"])
def test_it_says_what_ncu_says(chip: str, real: Path) -> None:
    """Two chips whose tables are real output of ncu: that its library's lists are ncu's own rests on this."""
    table = lookup.table(chip)
    assert table.source == "ncu --query-metrics"
    assert metric_tables.metrics(real, chip) == table.metrics


@pytest.mark.parametrize("chip", ["ga102", "gb100", "gb202"])
def test_its_tables_are_as_it_says_them_now(chip: str, real: Path) -> None:
    table = lookup.table(chip)
    assert table.source == "libnvperf_host.so of nvidia-cuda-cupti 13.0.85" == metric_tables.name_of(real)
    assert metric_tables.metrics(real, chip) == table.metrics


@pytest.mark.parametrize(("chip", "other"), lookup.SAME_LIST.items())
def test_chips_that_share_a_list_do(chip: str, other: str, real: Path) -> None:
    assert metric_tables.metrics(real, chip) == lookup.table(other).metrics
