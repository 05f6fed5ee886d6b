"""Makes an ordinary run record of an inventory. A file is a variant, so budgets may name files, archs and kernels."""

from __future__ import annotations

import functools
import itertools
import math
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence

from flashcore import __version__
from flashcore.chips import devices, occupancy
from flashcore.errors import UsageError
from flashcore.features.audit import sass
from flashcore.features.audit.inventory import AuditedKernel, Inventory
from flashcore.features.audit.kernels import SPILL_FACTS
from flashcore.model.case import Case
from flashcore.model.catalogue import FACTS
from flashcore.model.cause import Cause, Detail
from flashcore.model.causes import UNKNOWN_ARCH, DoesNotFit
from flashcore.model.files import text_hash
from flashcore.model.record import (
    Artifact,
    CaseSubject,
    CodeSubject,
    Environment,
    Fact,
    Facts,
    Record,
    Source,
    StageNote,
    Subject,
    Value,
)
from flashcore.model.suite import Binary, Budget, Problem, Shape, Suite, Variant, Where
from flashcore.model.text import count

NAME, UNKNOWN = "audit", "unknown"
_ARCH = re.compile(r"sm_(\d+)([af]?)")
#: Systems on a chip, whose machine code runs on no other GPU, and which run no other's.
_TEGRA = {53, 62, 72, 87, 101, 110}
#: Kinds of code that are compiled at first use, or by the linker.
_LATER = {"ptx": "PTX text", "lto": "LTO-IR part"}
_RESOURCES = (
    "registers",
    "stack_bytes",
    "static_smem",
    "barriers",
    "parameter_bytes",
    "code_bytes",
    "constant_bytes",
)
#: An unreadable part is a gap, whatever the other budgets select.
_READABLE = Budget(
    "readable", "code_bytes", "B", "static", "limit", "every audit", minimum=0, kernels=("unreadable:*",)
)


def record_of(
    run_id: str,
    inventory: Inventory,
    *,
    name: str,
    command: str,
    block: int | None = None,
    gpus: Mapping[str, int] | None = None,
) -> Record:
    """The record of the files, without budgets.

    Args:
        name: the suite's name; records of one name are compared with each other.
        block: as in :func:`facts`.
        gpus: the GPUs of :func:`facts_of_gpus`.
    """
    runs = list(facts_of_gpus(inventory, gpus or {}))
    judged = {(k.variant, k.arch): None for k in inventory.kernels}
    judged |= {(one.variant, one.arch or UNKNOWN): None for one in inventory.unread}
    places = judged | inventory.codes
    # nvcc adds device code to every file; one without kernels has nothing to limit.
    bare = {place for place, codes in inventory.codes.items() if codes and place not in judged}
    archs = {variant: [a for v, a in places if v == variant] or [UNKNOWN] for variant in inventory.files}
    every = tuple(dict.fromkeys(arch for of_file in archs.values() for arch in sorted(of_file, key=parts)))
    later = [
        f"{inventory.files[v]}: {count(n, _LATER[kind])} for {arch}" for (v, kind, arch), n in inventory.later.items()
    ]
    unread = f"{count(len(inventory.unread), 'part')} cannot be read" if inventory.unread else ""
    return Record(
        id=run_id,
        command=command,
        suite=_suite(name, inventory, archs, every, [*later, *(fact.note for fact in runs)]),
        environment=Environment(None, "", "", "", __version__),
        artifacts=tuple(
            Artifact(
                variant,
                arch,
                "unsupported" if (variant, arch) in bare else "ok",
                code=_hash(inventory.codes.get((variant, arch), ())),
            )
            for variant, of_file in archs.items()
            for arch in of_file
        ),
        stages=(StageNote("audit", "failed" if unread else "ok", inventory.seconds, unread),),
        facts=Facts([*facts(inventory, block), *runs]),
    )


def facts(inventory: Inventory, block: int | None = None) -> Iterator[Fact]:
    """The facts of each kernel; those of unreadable code are unmeasured, with the cause.

    Args:
        block: the threads per block for occupancy; ``None``: all that the launch bounds allow.
    """
    for kernel in inventory.kernels:
        yield from _facts(kernel, block, inventory.decisions)
    for one in inventory.unread:
        subject = CodeSubject(one.variant, one.arch or UNKNOWN, kernel=f"unreadable:{one.place.replace(' ', ':')}")
        for name in (*_RESOURCES, *SPILL_FACTS):
            yield _fact(subject, name, None, one.cause)


def _facts(kernel: AuditedKernel, block: int | None, decisions: sass.Decisions) -> Iterator[Fact]:
    subject, content, spills = (
        CodeSubject(kernel.variant, kernel.arch, kernel=kernel.name),
        kernel.content,
        kernel.spills,
    )
    for name in _RESOURCES:
        yield _fact(subject, name, *content.resource(name))
    yield _fact(subject, "code", content.code[:16])
    for name, value in content.demands.items():
        yield _fact(subject, name, value)
    for at, name in enumerate(SPILL_FACTS):
        yield _fact(subject, name, *((None, spills) if isinstance(spills, Cause) else (spills[at], "")))
    if kernel.disassembled:
        code = kernel.disassembled.result().get(content.name)
        yield from sass.facts(subject, code, spills, content.stack_bytes, decisions)
    only = math.prod(content.block) if content.block else 0
    low, high = only or 1, only or min(content.max_threads or occupancy.MAX_THREADS, occupancy.MAX_THREADS)
    bounds = (max(low, occupancy.WARP), high) if block is None else (block, block)
    cluster = math.prod(content.cluster or (1,))
    extremes: tuple[float, float] | Cause = content.missing or UNKNOWN_ARCH(kernel.arch)
    if content.registers is not None and content.static_smem is not None:
        extremes = _occupancy(kernel.arch, bounds, content.registers, content.static_smem, cluster)
    if block is not None and not low <= block <= high:
        extremes = DoesNotFit(f"{block:,} threads per block; the kernel's launch bounds allow {only or high:,}")
    for at, name in enumerate(("occupancy_low", "occupancy_high")):
        pct = None if isinstance(extremes, Cause) else extremes[at]
        detail = extremes if isinstance(extremes, Cause) else "without dynamic shared memory"
        yield Fact(subject, name, pct, "pct", Source.OCCUPANCY, detail)


@functools.cache
def _occupancy(
    arch: str, bounds: tuple[int, int], registers: int, smem: int, cluster: int
) -> tuple[float, float] | Cause:
    """The lowest and highest occupancy of the possible block sizes."""
    low, high = bounds
    sizes = dict.fromkeys((*range(low, high, occupancy.WARP), high))
    fits = [occupancy.occupancy(arch, threads, registers, smem, 0, cluster) for threads in sizes]
    shares = [fit.pct for fit in fits if fit.pct]
    return (round(min(shares), 4), round(max(shares), 4)) if shares else fits[0].cause or UNKNOWN_ARCH(arch)


_unit = functools.cache(lambda name: FACTS[name].unit)  # plugins' facts are slow to look up


def _fact(subject: Subject, name: str, value: Value | None, detail: Detail | str = "") -> Fact:
    return Fact(subject, name, value, _unit(name), Source.CUBIN, detail)


def _hash(codes: Sequence[str]) -> str:
    return text_hash(" ".join(sorted(codes))) if codes else ""


def _suite(
    name: str, inventory: Inventory, archs: Mapping[str, Sequence[str]], every: tuple[str, ...], notes: Sequence[str]
) -> Suite:
    files = inventory.files
    variants = {
        variant: Variant(
            name=variant,
            problem=NAME,
            kind=Binary(file),
            technique=file,
            where=Where(tuple(sorted(archs[variant], key=parts))),
            roof="",
            tolerance="",
            tolerance_reason="read, not run",
        )
        for variant, file in files.items()
    }
    return Suite(
        name=name,
        title=f"audit of {', '.join(dict.fromkeys(file.partition('!')[0] for file in files.values()))}",
        root=".",
        nvcc="",
        archs=every,
        baseline="",
        problems={NAME: Problem(NAME, "", "", (), (), ())},
        shapes={NAME: Shape(NAME, NAME, {}, ())},
        variants=variants,
        budgets=(_READABLE,) if inventory.unread else (),
        waivers=(),
        notes=tuple(notes),
    )


# --- which GPUs run a file ------------------------------------------------------------------------


def gpus_of(names: Iterable[str]) -> dict[str, int]:
    """The compute capability, such as 90, of each device of ``chips/devices.toml`` or arch such as ``sm_86``.

    Raises:
        UsageError: a name is neither.
    """
    result = {}
    for name in names:
        device = next((d for d in devices.load().values() if devices.is_called(d.title, name)), None)
        arch = _ARCH.fullmatch(device.arch if device else name)
        if arch is None:
            expected = ", ".join(devices.load())
            raise UsageError(f"--for: expected GPUs ({expected}) or archs such as sm_86, found {name!r}")
        result[name] = int(arch[1])
    return result


def runs(arch: str, gpu: int, *, ptx: bool = False) -> bool:
    """Whether a GPU runs code for ``arch``, by the compatibility rules of the CUDA C++ Programming Guide.

    Machine code runs on later GPUs of the same major version, but not across Tegra and other GPUs, and PTX on all later
    ones. Code for ``f`` archs runs within the major version, and code for ``a`` archs on no other GPU.
    """
    number, suffix = parts(arch)
    if suffix == "a" or number >= gpu:
        return number == gpu
    return (number // 10 == gpu // 10 and not {number, gpu} & _TEGRA) or (ptx and not suffix)


def facts_of_gpus(inventory: Inventory, requested: Mapping[str, int]) -> Iterator[Fact]:
    """For each file and GPU, the number of kernels whose machine code it runs; the detail is a sentence.

    Args:
        requested: from :func:`gpus_of`.
    """
    archs: dict[str, dict[str, set[str]]] = {variant: {} for variant in inventory.files}
    for kernel in inventory.kernels:
        archs[kernel.variant].setdefault(kernel.content.name, set()).add(kernel.arch)
    unread = {one.variant: one.cause for one in inventory.unread}
    for (variant, kernels), (gpu, number) in itertools.product(archs.items(), requested.items()):
        best = [max(usable, key=parts) for of in kernels.values() if (usable := [a for a in of if runs(a, number)])]
        later = [a for v, kind, a in inventory.later if (v, kind) == (variant, "ptx") and runs(a, number, ptx=True)]
        if best:
            result = f"machine code of {len(best)} of {len(kernels)} kernels ({_listed(best)})"
        elif later:
            result = f"no sm_{number} code: compiled at first use, from PTX for {_listed(later)}"
        else:
            result = "cannot run: not supported"
        detail = (not best and unread.get(variant)) or f"{inventory.files[variant]} on {gpu}: {result}"
        count = None if isinstance(detail, Cause) else len(best)
        yield Fact(CaseSubject(Case(variant, NAME), kernel=gpu), "native_kernels", count, "1", Source.CUBIN, detail)


def parts(arch: str) -> tuple[int, str]:
    """An arch's compute capability and suffix."""
    match = _ARCH.fullmatch(arch)
    return (int(match[1]), match[2]) if match else (0, "")


def _listed(archs: Iterable[str]) -> str:
    return ", ".join(sorted(set(archs), key=parts))
