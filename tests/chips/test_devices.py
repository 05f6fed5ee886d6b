"""The table of devices: figures that agree with each other, and mistakes that are named."""

from __future__ import annotations

from pathlib import Path

import pytest

from flashcore.chips import devices
from flashcore.chips.occupancy import limits
from flashcore.errors import Exit, ManifestError

KEYS = {"a100_40", "a100_80", "l4", "rtx4090", "h100", "h100_pcie", "h200", "b200", "rtx5090"}


def test_the_table_has_the_devices_it_promises() -> None:
    assert set(devices.load()) >= KEYS


@pytest.mark.parametrize("key", sorted(KEYS))
def test_each_rate_is_sms_times_flop_times_clock(key: str) -> None:
    device = devices.load()[key]
    assert {"fp16_tensor", "bf16_tensor", "fp32"} <= set(device.rates)
    for dtype, rate in device.rates.items():
        assert devices.peak(device, dtype, rate.clock_mhz) == pytest.approx(rate.tflops, rel=0.01), dtype
    assert device.rates["fp32"].per_clock == 2 * device.fp32_lanes
    assert limits(device.arch) is not None


def test_dense_figures_not_the_sparse_ones() -> None:
    l4, h200 = devices.find("NVIDIA L4"), devices.find("NVIDIA H200")
    assert l4 is not None
    assert h200 is not None
    assert devices.peak(l4, "fp16_tensor") == 121.0
    assert devices.peak(h200, "fp16_tensor") == 989.4
    assert devices.peak(h200, "fp16_tensor", 1830) == pytest.approx(132 * 4096 * 1.83e9 / 1e12)
    assert devices.peak(h200, "fp16_tensor", 1980) == pytest.approx(1070.5, abs=0.1)
    assert devices.peak(h200, "fp4_tensor") is None


@pytest.mark.parametrize(
    ("name", "key"),
    [
        ("NVIDIA L4", "l4"),
        ("l4", "l4"),
        ("L4", "l4"),
        ("NVIDIA GeForce RTX 4090", "rtx4090"),
        ("RTX 4090", "rtx4090"),
        ("NVIDIA H100 80GB HBM3", "h100"),
        ("h100_pcie", "h100_pcie"),
        ("NVIDIA A100-SXM4-80GB", "a100_80"),
        ("NVIDIA L40", None),
        ("NVIDIA H200 MIG 1g.18gb", None),
        ("NVIDIA GeForce RTX 4090 Laptop GPU", None),
        ("", None),
        (None, None),
    ],
)
def test_find_takes_whole_names_only(name: str | None, key: str | None) -> None:
    found = devices.find(name)
    assert (found.key if found else None) == key


def mistakes_of(tmp_path: Path, text: str) -> list[str]:
    path = tmp_path / "devices.toml"
    path.write_text(text, encoding="utf-8")
    with pytest.raises(ManifestError) as caught:
        devices.load(path)
    assert caught.value.exit_code is Exit.USAGE
    return caught.value.mistakes


def entry(**changes: str) -> str:
    values = {
        "names": '["NVIDIA X1"]', "title": '"X1"', "arch": '"sm_90a"', "sms": "10",
        "source": '"a datasheet"', "clock_mhz": "1000", "dram_gbps": "100", "memory_gib": "8",
        "l2_mib": "4", "fp32_lanes": "128", "mufu_per_clock": "16", "smem_per_clock": "128",
        "rates": "{ fp32 = { tflops = 2.56, per_clock = 256, clock_mhz = 1000 } }",
    }  # fmt: skip
    values.update(changes)
    return "[device.x1]\n" + "".join(f"{k} = {v}\n" for k, v in values.items() if v)


def test_a_right_entry_loads(tmp_path: Path) -> None:
    path = tmp_path / "devices.toml"
    path.write_text(entry(), encoding="utf-8")
    assert devices.load(path)["x1"].rates["fp32"].tflops == 2.56


@pytest.mark.parametrize(
    ("text", "mistake"),
    [
        (entry(sms='"many"'), "device.x1.sms: expected a whole number above 0, found 'many'"),
        (entry(sms="1.5"), "device.x1.sms: expected a whole number above 0, found 1.5"),
        (entry(dram_gbps="-1"), "device.x1.dram_gbps: expected a number above 0, found -1"),
        (entry(l2_mib="inf"), "device.x1.l2_mib: expected a number above 0, found inf"),
        (entry(clock_mhz="true"), "device.x1.clock_mhz: expected a number above 0, found True"),
        (entry(source=""), "device.x1.source: expected a value, found nothing"),
        (entry(source='""'), "device.x1.source: expected text, found ''"),
        (entry(names="[]"), "device.x1.names: expected a list of at least one name, found []"),
        (entry(wings="2"), "device.x1.wings: expected no such key (is it misspelled?), found 2"),
        (
            entry(rates="{ fp32 = { tflops = 2.56, clock_mhz = 1000 } }"),
            "device.x1.rates.fp32.per_clock: expected a value, found nothing",
        ),
        (entry(rates="{ fp32 = 7 }"), "device.x1.rates.fp32: expected a table, found 7"),
        (
            entry() + entry().replace("[device.x1]", "[device.x2]"),
            "device.x2: expected unique names, found 'x1' twice",
        ),
    ],
)
def test_a_mistake_names_its_key(tmp_path: Path, text: str, mistake: str) -> None:
    assert mistakes_of(tmp_path, text) == [mistake]


def test_all_mistakes_at_once(tmp_path: Path) -> None:
    found = mistakes_of(tmp_path, entry(sms="0", arch="7") + "[other]\nx = 1\n")
    assert len(found) == 3


def test_broken_toml_and_an_empty_table(tmp_path: Path) -> None:
    assert mistakes_of(tmp_path, "[device.")[0].startswith("not valid TOML")


@pytest.mark.parametrize(
    ("gpu", "device", "called"),
    [
        ("NVIDIA H200", "H200", True),
        ("NVIDIA H100 80GB HBM3", "h100", True),
        ("NVIDIA L40", "L4", False),
        ("NVIDIA H200", "NVIDIA-H200", True),
        ("NVIDIA H200", "L4", False),
        (None, "H200", False),
        ("Some GPU", "No such", False),
    ],
)
def test_a_device_is_called_by_whole_words(gpu: str | None, device: str, called: bool) -> None:
    assert devices.is_called(gpu, device) is called
