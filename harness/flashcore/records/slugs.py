"""Short names for a report's functions (variants) and launch configurations (shapes)."""

from __future__ import annotations

import hashlib
import re
from collections import Counter
from collections.abc import Iterable, Mapping

from flashcore.errors import UsageError
from flashcore.readers.kernel_names import canonical
from flashcore.readers.ncu.results import Result
from flashcore.records.soundness import NAME

_LONGEST = 60  # they name files; runs allow 100


def slug(text: str) -> str:
    """The text as a record's name, ``[a-z][a-z0-9_]*``; a long one is cut and gets a hash."""
    plain = _plain(text)
    return plain if len(plain) <= _LONGEST else f"{plain[: _LONGEST - 7].rstrip('_')}_{_hash(text)}"


def end_slug(path: str) -> str:
    """As :func:`slug`; a long path loses its first folders, as far as its end is short enough, and gets a hash."""
    folders = path.split("/")
    ends = (_plain("/".join(folders[i:])) for i in range(1, len(folders)))
    end = next((end for end in ends if len(end) <= _LONGEST - 7), "")
    return f"{end}_{_hash(path)}" if end and len(_plain(path)) > _LONGEST else slug(path)


def _plain(text: str) -> str:
    plain = re.sub(r"[^a-z0-9]+", "_", text.lower()).strip("_")
    return plain if plain[:1].isalpha() else f"k_{plain}".rstrip("_")


def checked(name: str) -> str:
    """Returns the user's name for a record's suite.

    Raises:
        UsageError: a manifest may not have this name.
    """
    if not NAME.fullmatch(name):
        raise UsageError(
            f"--name {name[:200]!r}: expected a name that matches {NAME.pattern}\n  hint: --name {slug(name)}"
        )
    return name


def _hash(text: str) -> str:
    return hashlib.sha256(text.encode("utf-8", "replace")).hexdigest()[:6]


def variants(kernels: Iterable[str]) -> Mapping[str, str]:
    """Full name → slug. Functions with the same slug (overloads) get a hash of their full name."""
    return _unique({kernel: slug(canonical(kernel)) for kernel in kernels})


def arguments(texts: Iterable[str]) -> Mapping[str, str]:
    """The arguments of benchmarks → slugs; ``default`` without any."""
    return _unique({text: slug(text) if text else "default" for text in texts})


def _unique(slugs: Mapping[str, str]) -> Mapping[str, str]:
    uses = Counter(slugs.values())
    return {text: s if uses[s] == 1 else f"{s}_{_hash(text)}" for text, s in slugs.items()}


def shape_parameters(result: Result) -> dict[str, int | float | str | bool]:
    """The recorded launch configuration: grid and block as ``128x8x1``, bytes of dynamic shared memory, blocks per
    cluster."""
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
