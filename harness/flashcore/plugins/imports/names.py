"""Short names for the long ones of a report: a variant's name for a function, a shape's for a launch configuration."""

from __future__ import annotations

import hashlib
import re
from collections import Counter
from collections.abc import Iterable, Mapping

from flashcore.errors import UsageError
from flashcore.readers.kernel_names import canonical
from flashcore.readers.ncu.results import Result

_LONGEST = 60  # they name files; runs allow 100
_MOST = 100
_PATTERN = "[a-z][a-z0-9_]*"
_NAME = re.compile(rf"(?=.{{1,{_MOST}}}\Z){_PATTERN}")


def slug(text: str) -> str:
    """A name as records have them, ``[a-z][a-z0-9_]*``: a name that is too long is cut and gets its hash."""
    plain = re.sub(r"[^a-z0-9]+", "_", text.lower()).strip("_")
    plain = plain if plain[:1].isalpha() else f"k_{plain}".rstrip("_")
    return plain if len(plain) <= _LONGEST else f"{plain[: _LONGEST - 7].rstrip('_')}_{_hash(text)}"


def checked(name: str) -> str:
    """The name that a user gives a record's suite.

    Raises:
        UsageError: it is none that a manifest may have.
    """
    if not _NAME.fullmatch(name):
        raise UsageError(
            f"--name {name[:200]!r}: expected a name of at most {_MOST} letters matching {_PATTERN}\n"
            f"  hint: --name {slug(name)}"
        )
    return name


def _hash(text: str) -> str:
    return hashlib.sha256(text.encode("utf-8", "replace")).hexdigest()[:6]


def variants(kernels: Iterable[str]) -> Mapping[str, str]:
    """Full name → slug. Functions that would share one (overloads) get a hash of their full name behind it."""
    slugs = {kernel: slug(canonical(kernel)) for kernel in dict.fromkeys(kernels)}
    uses = Counter(slugs.values())
    return {k: s if uses[s] == 1 else f"{s}_{_hash(k)}" for k, s in slugs.items()}


def shape_parameters(result: Result) -> dict[str, int | float | str | bool]:
    """The launch configuration, as far as it is known: grid and block as ``128x8x1``, bytes of dynamic shared memory,
    blocks a cluster."""
    if result.workload != "kernel" or not result.grid[0]:
        return {"launch": result.workload if result.workload != "kernel" else "unknown"}
    parameters: dict[str, int | float | str | bool] = {"grid": _text(result.grid), "block": _text(result.block)}
    if memory := result.number("launch__shared_mem_per_block_dynamic"):
        parameters["dynamic_smem"] = int(memory)
    return parameters | ({"cluster": result.cluster} if result.cluster > 1 else {})


def _text(dims: tuple[int, int, int]) -> str:
    return "x".join(str(n) for n in dims)


def shape(parameters: Mapping[str, int | float | str | bool]) -> str:
    """``g16384_b256_s4096_c2``; trailing ones are left out."""
    if "launch" in parameters:
        return str(parameters["launch"])
    letters = {"grid": "g", "block": "b", "dynamic_smem": "s", "cluster": "c"}
    parts = [letters[n] + re.sub(r"(x1)+$", "", str(value)) for n, value in parameters.items()]
    return "_".join(parts)
