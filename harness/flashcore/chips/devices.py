"""Reads the datasheet figures of GPUs from ``devices.toml``: dense rates, bandwidths, sizes, with their source.

A GPU that is not in the table has only measured roofs.
"""

from __future__ import annotations

import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

TABLE = Path(__file__).with_name("devices.toml")


@dataclass(frozen=True, slots=True)
class Rate:
    """A dense rate: the printed figure and its factors.

    Args:
        tflops: TFLOP/s as the datasheet prints it (sparse figures halved).
        per_clock: FLOPs per SM and clock.
        clock_mhz: the SM clock that the printed figure assumes.
    """

    tflops: float
    per_clock: int
    clock_mhz: float


@dataclass(frozen=True, slots=True)
class Device:
    """A GPU's datasheet. Units: MHz, GB/s, MiB; ``*_per_clock`` and ``fp32_lanes`` are per SM."""

    key: str
    names: tuple[str, ...]
    title: str
    arch: str
    sms: int
    source: str
    clock_mhz: float
    dram_gbps: float
    l2_mib: float
    fp32_lanes: int
    mufu_per_clock: int
    smem_per_clock: int
    rates: Mapping[str, Rate]


@cache
def load() -> Mapping[str, Device]:
    """All devices by key."""
    table = tomllib.loads(TABLE.read_text(encoding="utf-8"))["device"]
    return {key: _device(key, **entry) for key, entry in table.items()}


def _device(key: str, names: Sequence[str], rates: Mapping[str, Mapping[str, Any]], **figures: Any) -> Device:
    return Device(key, tuple(names), rates={dtype: Rate(**rate) for dtype, rate in rates.items()}, **figures)


@cache
def find(gpu: str | None) -> Device | None:
    """The device by its driver's name, title (``L4``) or key (``h100_pcie``); ``None`` if it is not in the table.

    Whole names are compared, ignoring case, spaces and the prefixes NVIDIA and GeForce: an L40 is not an L4.
    """
    if gpu is None:
        return None
    return next((device for device in load().values() if _plain(gpu) in _all_names(device)), None)


def peak(device: Device, dtype: str, clock_mhz: float | None = None) -> float | None:
    """The dense rate in TFLOP/s for ``dtype`` (such as ``fp16_tensor``); ``None`` if the device has none.

    Args:
        clock_mhz: the SM clock to scale to; by default the rate is as printed.
    """
    rate = device.rates.get(dtype)
    if rate is None:
        return None
    return rate.tflops if clock_mhz is None else device.sms * rate.per_clock * clock_mhz / 1e6


def is_called(gpu: str | None, device: str) -> bool:
    """Whether the GPU is that device: its name contains the text as whole words (an L40 is not an L4), or both are the
    same device of the table."""
    if f" {device.replace('-', ' ').lower()} " in f" {(gpu or '').replace('-', ' ').lower()} ":
        return True
    listed = find(device)
    return listed is not None and listed == find(gpu)


def is_name(text: str) -> bool:
    """Whether a GPU may be called so: one of the table, or by a whole name of the driver, which starts with NVIDIA."""
    names = (name for device in load().values() for name in (device.title, *device.names))
    return text.startswith("NVIDIA ") or find(text) is not None or any(is_called(name, text) for name in names)


def _all_names(device: Device) -> set[str]:
    return {_plain(name) for name in (*device.names, device.title, device.key)}


def _plain(name: str) -> str:
    return "".join(w for w in name.lower().replace("_", " ").split() if w not in ("nvidia", "geforce"))
