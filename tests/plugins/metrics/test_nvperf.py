"""The library that ncu asks for a chip's metrics: read through a stand-in, and the real one held to the tables."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from flashcore.chips.metric_tables import lookup
from flashcore.errors import CapabilityError
from flashcore.measure.machine import toolchain
from flashcore.plugins.metrics import nvperf

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
    library = folder / nvperf.LIBRARY
    paths = [str(library), str(folder / "x.cc")]
    subprocess.run([str(toolchain.find_cxx()), "-shared", "-fPIC", "-o", *paths], check=True)
    return library


def test_the_names_of_each_kind_are_read(tmp_path: Path) -> None:
    library = compiled(tmp_path, STAND_IN)
    assert nvperf.metrics(library, "gx100") == {"sm__a": "Counter", "sm__b": "Counter", "sm__rate": "Ratio"}
    assert nvperf.name_of(library) == f"libnvperf_host.so of {tmp_path}"
    with pytest.raises(CapabilityError, match=r"metrics of gx200, found status 14 of .*ScratchBufferSize"):
        nvperf.metrics(library, "gx200")


def test_another_library_is_said(tmp_path: Path) -> None:
    with pytest.raises(CapabilityError, match="expected NVPW_InitializeHost, found no such function"):
        nvperf.metrics(compiled(tmp_path, "int x;"), "gx100")
    (tmp_path / "text.so").write_text("no library")
    with pytest.raises(CapabilityError, match="cannot be loaded"):
        nvperf.metrics(tmp_path / "text.so", "gx100")


@pytest.fixture(scope="module")
def real() -> Path:
    try:
        library = nvperf.find()
    except CapabilityError as error:
        pytest.skip(f"package: {error}")
    if "13.0.85" not in nvperf.name_of(library):
        pytest.skip(f"package: {library} is of another release than the committed tables")
    return library


@pytest.mark.parametrize("chip", ["ad104", "ga100"])
def test_it_says_what_ncu_says(chip: str, real: Path) -> None:
    """Two chips whose tables are real output of ncu: that its library's lists are ncu's own rests on this."""
    table = lookup.table(chip)
    assert table.source == "ncu --query-metrics"
    assert nvperf.metrics(real, chip) == table.metrics


@pytest.mark.parametrize("chip", ["ga102", "gb100", "gb202"])
def test_its_tables_are_as_it_says_them_now(chip: str, real: Path) -> None:
    table = lookup.table(chip)
    assert table.source == "libnvperf_host.so of nvidia-cuda-cupti 13.0.85" == nvperf.name_of(real)
    assert nvperf.metrics(real, chip) == table.metrics


@pytest.mark.parametrize(("chip", "other"), lookup.SAME_LIST.items())
def test_chips_that_share_a_list_do(chip: str, other: str, real: Path) -> None:
    assert nvperf.metrics(real, chip) == lookup.table(other).metrics
