"""Nine small problems of one suite: which one is told by the names of a shape's parameters.

Inputs are small integers or fractions with few bits, so that sums are exact in fp32 in any order.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

KINDS = ("normal",)
TOLERANCES = {
    "exact": "every intermediate result has at most 24 bits",
    "approximate": "roots and powers by hardware approximations: 2^-19 of the result",
}
FENCE = {"max": 1e-2, "mean": 1e-3}
_PROBLEMS = {
    "HW": "stencil",
    "NT": "filter",
    "KM": "norm",
    "BS": "scan",
    "CN": "density",
    "KMNR": "gemm",
    "P": "pixels",
    "NZ": "groups",
    "LMV": "pages",
}


def _name(params: Mapping[str, Any]) -> str:
    return _PROBLEMS["".join(sorted(params))]


def make_inputs(params: Mapping[str, Any], seed: int, device: str, kind: str = "normal") -> dict[str, Any]:
    """Uniform integers of a few bits."""
    import torch

    generator = torch.Generator(device=device).manual_seed(seed)

    def draw(least: int, most: int, *size: int) -> Any:
        return torch.randint(least, most + 1, size, generator=generator, device=device)

    p = params
    match _name(p):
        case "stencil":
            return {"x": draw(-8, 8, p["H"], p["W"]).float()}
        case "filter":
            return {"x": draw(-8, 8, p["N"] + p["T"]).float(), "w": draw(-4, 4, p["T"]).float()}
        case "norm":
            return {"x": draw(-8, 8, p["M"], p["K"]).float()}
        case "scan":
            return {"x": draw(-8, 8, p["B"], p["S"]).float()}
        case "density":
            points = {"x": draw(-64, 64, p["N"]) / 16, "c": draw(-64, 64, p["C"]) / 16}
            return {**points, "w": draw(1, 4, p["C"]).float()}
        case "gemm":
            sizes = {"a": (p["M"], p["K"]), "b": (p["N"], p["K"])}
            return {**{n: draw(-4, 4, *s).half() for n, s in sizes.items()}, "rounds": int(p["R"])}
        case "pixels":
            return {"x": draw(0, 255, p["P"]).to(torch.uint8)}
        case "groups":
            key = torch.where(draw(1, 100, p["N"]) <= p["Z"], 7, draw(0, 255, p["N"]))  # Z percent have one key
            return {"key": key.to(torch.uint8), "value": draw(0, 3, p["N"]).int()}
    successors = torch.randperm(p["V"], generator=generator, device=device)
    return {"value": draw(-1, 1, p["V"], 32).float(), "next": successors.int()}


def reference(inputs: Mapping[str, Any], params: Mapping[str, Any]) -> dict[str, Any]:
    """The answer in float64."""
    return _answer(inputs, params, 0.0)


def emulate(tolerance: str, inputs: Mapping[str, Any], params: Mapping[str, Any]) -> dict[str, Any]:
    """The exact answer, or one whose roots and powers are too large by 2^-19."""
    return _answer(inputs, params, 2.0**-19 if tolerance == "approximate" else 0.0)


def _answer(inputs: Mapping[str, Any], params: Mapping[str, Any], error: float) -> dict[str, Any]:
    import torch

    numbers = {n: v.double() for n, v in inputs.items() if n in ("x", "w", "c", "a", "b", "value")}
    x: Any = numbers.get("x")
    match _name(params):
        case "stencil":
            near = sum(x.roll(shift, dim) for shift in (-1, 1) for dim in (0, 1))
            return {"out": (4 * x + near) / 8}
        case "filter":
            out = torch.zeros_like(x[: params["N"]])
            for t, weight in enumerate(numbers["w"]):
                out += weight * x[t : t + params["N"]]
            return {"out": out}
        case "norm":
            x = x - x.mean(1, keepdim=True)
            return {"out": x * ((x * x).mean(1, keepdim=True) + 1e-5).rsqrt() * (1 + error)}
        case "scan":
            return {"out": x.cumsum(1)}
        case "density":
            out = torch.zeros_like(x)
            for center, weight in zip(numbers["c"], numbers["w"], strict=True):
                out += weight * (1 - (x - center) ** 2 * (1 + error)).clamp(min=0)
            return {"out": out}
        case "gemm":
            return {"c": inputs["rounds"] * (numbers["a"] @ numbers["b"].t())}
        case "pixels":
            tones = torch.tensor([_tone(v) for v in range(256)], device=x.device)
            return {"out": tones[inputs["x"].long()].double()}
        case "groups":
            return {"out": torch.bincount(inputs["key"].long(), weights=numbers["value"], minlength=256)}
    page = torch.arange(params["M"], device=inputs["next"].device)
    elements = []
    for _ in range(params["L"]):
        elements.append(numbers["value"][page])
        page = inputs["next"][page].long()
    along = torch.stack(elements)
    return {"out": ((along - along.mean(0)) ** 2).sum(0)}


def _tone(v: int) -> int:
    """A curve of eight segments: eight steps of one map for each, in 16 bits."""
    segment = v >> 5
    for _ in range(8):
        maps = (
            v * v + 3 * v + 17,
            (v ^ (v << 3)) + 29,
            (v * 5) ^ (v >> 4),
            v + ((v * v) >> 7),
            (v * v) ^ 0x5A5A,
            v * 7 + (v >> 3),
            (v ^ ((v * v) >> 5)) + 11,
            (v * 3) ^ (v << 2),
        )
        v = maps[segment] & 0xFFFF
    return v & 0xFF


def work(params: Mapping[str, Any]) -> dict[str, float]:
    """Additions and multiplications of the shortest formula, and each tensor moved once. Problems that only move or add
    integers count an operation per element."""
    p = params
    match name := _name(p):
        case "stencil":
            flop, moved = 6 * p["H"] * p["W"], 8 * p["H"] * p["W"]
        case "filter":
            flop, moved = 2 * p["N"] * p["T"], 8 * p["N"]
        case "norm":
            flop, moved = 5 * p["M"] * p["K"], 8 * p["M"] * p["K"]
        case "scan":
            flop, moved = p["B"] * p["S"], 8 * p["B"] * p["S"]
        case "density":
            flop, moved = 6 * p["N"] * p["C"], 8 * p["N"]
        case "gemm":
            flop = 2 * p["M"] * p["N"] * p["K"] * p["R"]
            moved = 2 * p["K"] * (p["M"] + p["N"]) + 4 * p["M"] * p["N"]
        case "pixels":
            flop, moved = p["P"], 2 * p["P"]
        case "groups":
            flop, moved = p["N"], 5 * p["N"]
        case _:
            flop, moved = 3 * 32 * p["M"] * p["L"], p["M"] * (132 * p["L"] + 128)
    return {"flop": flop, f"{'tensor' if name == 'gemm' else 'fp32'}_flop": flop, "bytes": moved}
