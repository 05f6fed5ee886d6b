"""Reads the datasheet figures of GPUs from ``devices.toml``: dense rates, bandwidths, sizes, with their source.

A GPU that is not in the table has only measured roofs.
"""

from __future__ import annotations

import math
import tomllib
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, fields
from functools import cache
from pathlib import Path
from typing import Any

from flashcore.errors import ManifestError

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
    """A GPU's datasheet. Units: MHz, GB/s, GiB, MiB; ``*_per_clock`` and ``fp32_lanes`` are per SM."""

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
        ManifestError: the table is wrong; lists every mistake with its key.
    """
    try:
        data = tomllib.loads(path.read_text(encoding="utf-8"))
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise ManifestError(str(path), [f"not valid TOML: {error}"]) from error
    mistakes = [f"{key}: expected no such key, found {data[key]!r}" for key in sorted(set(data) - {"device"})]
    table = data.get("device")
    if not isinstance(table, dict) or not table:
        raise ManifestError(str(path), [*mistakes, "device: expected at least one [device.NAME] table"])
    devices: dict[str, Device] = {}
    owners: dict[str, str] = {}
    for key, entry in table.items():
        if wrong := list(_mistakes(Device, f"device.{key}", entry)):
            mistakes += wrong
            continue
        rates = {dtype: Rate(**rate) for dtype, rate in entry["rates"].items()}
        devices[key] = Device(**entry | {"key": key, "names": tuple(entry["names"]), "rates": rates})
        for name in _all_names(devices[key]):
            if owners.setdefault(name, key) != key:
                mistakes.append(f"device.{key}: expected unique names, found {name!r} twice")
    if mistakes:
        raise ManifestError(str(path), mistakes)
    return devices


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


def _all_names(device: Device) -> set[str]:
    return {_plain(name) for name in (*device.names, device.title, device.key)}


def _plain(name: str) -> str:
    return "".join(w for w in name.lower().replace("_", " ").split() if w not in ("nvidia", "geforce"))


#: For each field type: the expected value in words, and its check.
_FORMS: Mapping[Any, tuple[str, Callable[[Any], bool]]] = {
    "str": ("text", lambda v: isinstance(v, str) and v != ""),
    "int": ("a whole number above 0", lambda v: type(v) is int and v > 0),
    "float": ("a number above 0", lambda v: type(v) in (int, float) and 0 < v < math.inf),
    "tuple[str, ...]": (
        "a list of at least one name",
        lambda v: isinstance(v, list) and v != [] and all(isinstance(n, str) and n for n in v),
    ),
    "Mapping[str, Rate]": ("a table of rates", lambda v: isinstance(v, dict) and v != {}),
}


def _mistakes(kind: type[Device | Rate], where: str, entry: Any) -> Iterator[str]:
    """Yields a message for each key that is missing, unknown or of the wrong type."""
    if not isinstance(entry, dict):
        yield f"{where}: expected a table, found {entry!r}"
        return
    types = {f.name: f.type for f in fields(kind) if f.name != "key"}
    for name in sorted(types.keys() | entry):
        key = f"{where}.{name}"
        if name not in entry:
            yield f"{key}: expected a value, found nothing"
        elif name not in types:
            yield f"{key}: expected no such key (is it misspelled?), found {entry[name]!r}"
        elif not _FORMS[types[name]][1](entry[name]):
            yield f"{key}: expected {_FORMS[types[name]][0]}, found {entry[name]!r}"
        elif name == "rates":
            for dtype, rate in entry[name].items():
                yield from _mistakes(Rate, f"{key}.{dtype}", rate)
