"""Reads datasheet figures of GPUs from ``devices.toml``: dense rates, bandwidths, sizes, with their source.

A GPU that is not in the table is no error: it has only measured roofs.
"""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from dataclasses import MISSING, dataclass, fields
from functools import cache
from pathlib import Path
from typing import Any

from flashcore.errors import ManifestError

TABLE = Path(__file__).with_name("devices.toml")


@dataclass(frozen=True, slots=True)
class Rate:
    """A dense rate: as printed, and what it is made of.

    Args:
        tflops: TFLOP/s as the datasheet prints it (sparse figures halved).
        per_clock: FLOPs that an SM does in a clock.
        clock_mhz: the clock that the printed figure assumes.
    """

    tflops: float
    per_clock: int
    clock_mhz: float


@dataclass(frozen=True, slots=True)
class Device:
    """A GPU as its datasheet has it. Units: MHz, GB/s, GiB, MiB; ``*_per_clock`` is for each SM."""

    key: str
    names: tuple[str, ...]
    title: str
    arch: str
    sms: int
    source: str
    clock_mhz: float
    dram_gbps: float
    memory_gib: float
    l2_mib: float
    fp32_lanes: int
    mufu_per_clock: int
    smem_per_clock: int
    rates: Mapping[str, Rate]


@cache
def load(path: Path = TABLE) -> Mapping[str, Device]:
    """All devices by key.

    Raises:
        ManifestError: the table is wrong; holds every mistake found, each with its key.
    """
    try:
        data = tomllib.loads(path.read_text(encoding="utf-8"))
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise ManifestError(str(path), [f"not valid TOML: {error}"]) from error
    mistakes: list[str] = []
    devices: dict[str, Device] = {}
    for unknown in sorted(set(data) - {"device"}):
        mistakes.append(f"{unknown}: expected no such key, found {data[unknown]!r}")
    table = data.get("device")
    if not isinstance(table, dict) or not table:
        raise ManifestError(str(path), [*mistakes, "device: expected at least one [device.NAME] table"])
    for key, entry in table.items():
        device = _device(key, entry, mistakes)
        if device is not None:
            devices[key] = device
    owners: dict[str, str] = {}
    for device in devices.values():
        for name in {_plain(n) for n in (*device.names, device.title, device.key)}:
            if owners.setdefault(name, device.key) != device.key:
                mistakes.append(f"device.{device.key}: expected names that no other device has, found {name!r} twice")
    if mistakes:
        raise ManifestError(str(path), mistakes)
    return devices


@cache
def find(gpu: str | None) -> Device | None:
    """The device that the driver calls ``gpu``, or that ``L4`` or ``h100_pcie`` names; ``None`` if the table lacks it.

    Names are compared as a whole, without case, spaces and the makers' prefixes: an L40 is no L4.
    """
    if gpu is None:
        return None
    wanted = _plain(gpu)
    for device in load().values():
        if wanted in {_plain(n) for n in (*device.names, device.title, device.key)}:
            return device
    return None


def peak(device: Device, dtype: str, clock_mhz: float | None = None) -> float | None:
    """The dense rate in TFLOP/s for ``dtype`` (as ``fp16_tensor``); ``None`` if it has none.

    With ``clock_mhz`` the rate at that SM clock, else the figure as printed.
    """
    rate = device.rates.get(dtype)
    if rate is None:
        return None
    return rate.tflops if clock_mhz is None else device.sms * rate.per_clock * clock_mhz / 1e6


def is_called(gpu: str | None, device: str) -> bool:
    """Whether the GPU is that device: its name holds the text as whole words (an L40 is no L4), or the table knows
    both as one."""
    if f" {device.replace('-', ' ').lower()} " in f" {(gpu or '').replace('-', ' ').lower()} ":
        return True
    listed = find(device)
    return listed is not None and listed == find(gpu)


def _plain(name: str) -> str:
    return "".join(w for w in name.lower().replace("_", " ").split() if w not in ("nvidia", "geforce"))


_TEXT = {"title", "arch", "source"}
_INTEGERS = {"sms", "fp32_lanes", "mufu_per_clock", "smem_per_clock", "per_clock"}


def _device(key: str, entry: Any, mistakes: list[str]) -> Device | None:
    where = f"device.{key}"
    wanted = {f.name for f in fields(Device)} - {"key"}
    if not _complete(where, entry, wanted, mistakes):
        return None
    before = len(mistakes)
    names, rates = entry["names"], entry["rates"]
    if not (isinstance(names, list) and names and all(isinstance(n, str) and n for n in names)):
        mistakes.append(f"{where}.names: expected a list of at least one name, found {names!r}")
    if not isinstance(rates, dict) or not rates:
        mistakes.append(f"{where}.rates: expected a table of rates, found {rates!r}")
    for name in sorted(wanted - {"names", "rates"}):
        _value(f"{where}.{name}", name, entry[name], mistakes)
    if len(mistakes) > before:
        return None
    built: dict[str, Rate] = {}
    parts = {f.name for f in fields(Rate) if f.default is MISSING}
    for dtype, rate in rates.items():
        if not _complete(f"{where}.rates.{dtype}", rate, parts, mistakes):
            continue
        for name in sorted(parts):
            _value(f"{where}.rates.{dtype}.{name}", name, rate[name], mistakes)
        if len(mistakes) == before:
            built[dtype] = Rate(**rate)
    if len(mistakes) > before:
        return None
    return Device(**{**entry, "key": key, "names": tuple(names), "rates": built})


def _complete(where: str, entry: Any, wanted: set[str], mistakes: list[str]) -> bool:
    """Whether ``entry`` is a table with exactly these keys."""
    if not isinstance(entry, dict):
        mistakes.append(f"{where}: expected a table, found {entry!r}")
        return False
    for name in sorted(wanted - set(entry)):
        mistakes.append(f"{where}.{name}: expected a value, found nothing")
    for name in sorted(set(entry) - wanted):
        mistakes.append(f"{where}.{name}: expected no such key (is it misspelt?), found {entry[name]!r}")
    return set(entry) == wanted


def _value(where: str, name: str, value: Any, mistakes: list[str]) -> None:
    if name in _TEXT:
        fine, expected = isinstance(value, str) and bool(value), "text"
    elif name in _INTEGERS:
        fine, expected = type(value) is int and value > 0, "a whole number above 0"
    else:
        fine = type(value) in (int, float) and 0 < value < float("inf")
        expected = "a number above 0"
    if not fine:
        mistakes.append(f"{where}: expected {expected}, found {value!r}")
