"""The table of devices: its figures are positive and agree with each other; a device is found by its names."""

from __future__ import annotations

import dataclasses
import math

import pytest

from flashcore.chips import devices
from flashcore.chips.occupancy import limits

KEYS = {"a100_40", "a100_80", "l4", "rtx4090", "h100", "h100_pcie", "h200", "b200", "rtx5090"}


def test_the_table_has_its_devices() -> None:
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
    result = devices.find(name)
    assert (result.key if result else None) == key


FIGURES = {"int": (int,), "float": (int, float)}


@pytest.mark.parametrize("device", devices.load().values(), ids=lambda device: device.key)
def test_each_figure_is_a_positive_number_and_each_text_is_there(device: devices.Device) -> None:
    rows: list[devices.Device | devices.Rate] = [device, *device.rates.values()]
    for row in rows:
        for field in dataclasses.fields(row):
            value = getattr(row, field.name)
            if field.type in FIGURES:
                assert type(value) in FIGURES[field.type] and 0 < value < math.inf, field.name
            elif field.type == "str":
                assert type(value) is str and value, field.name
    assert device.rates and device.names and all(type(name) is str and name for name in device.names)


def test_a_name_is_of_one_device() -> None:
    names = [(name, device.key) for device in devices.load().values() for name in (*device.names, device.title)]
    for name, key in names:
        found = devices.find(name)
        assert found and found.key == key, name


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


@pytest.mark.parametrize(
    ("text", "expected"),
    [("H200", True), ("h100_pcie", True), ("A100", True), ("NVIDIA Unlisted 1", True), ("H20O", False), ("", False)],
)
def test_a_device_is_of_the_table_or_has_its_whole_name(text: str, expected: bool) -> None:
    assert devices.is_name(text) is expected
