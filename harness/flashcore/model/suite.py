"""What a suite declares, as frozen data: problems, shapes, variants, budgets and what the gate tolerates.

Nothing here imports anything outside the model, so every layer may use it. What is measured and recorded of a
suite is in :mod:`flashcore.model.record`.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field, replace
from fnmatch import fnmatchcase
from typing import Any, ClassVar, Literal

from flashcore.model.groups import grouped

Stage = Literal["check", "bench", "profile", "sanitize"]
#: The stages that need a GPU, in order; asking for one asks for those before it. Sanitize is not one of them: it is
#: asked for separately.
GPU_STAGES: tuple[Stage, ...] = ("check", "bench", "profile", "sanitize")
Tier = Literal["static", "counters", "timing"]
TIERS: tuple[Tier, ...] = ("static", "counters", "timing")
#: How a call is timed; see :mod:`flashcore.measure.bench.timing`.
Regime = Literal["isolated", "back_to_back", "cold"]
REGIMES: tuple[Regime, ...] = ("isolated", "back_to_back", "cold")
Severity = Literal["limit", "goal"]


@dataclass(frozen=True, slots=True)
class Shape:
    """Named parameters of a problem, and the stages that use it. ``rank_by`` is the regime that variants are
    ranked and compared by here, ``repeats`` how many calls of a variant must agree bit by bit, at least. ``same_as``
    names a shape of another problem that is the same computation."""

    name: str
    problem: str
    params: Mapping[str, int | float | str | bool]
    stages: tuple[Stage, ...]
    rank_by: Regime = "isolated"
    repeats: int = 0
    same_as: str = ""

    @property
    def time(self) -> str:
        """The fact that ranks: ``isolated_p50``."""
        return f"{self.rank_by}_p50"

    @property
    def params_text(self) -> str:
        """``B=1, H=8, S=512, D=64``."""
        return ", ".join(f"{k}={v}" for k, v in self.params.items())


@dataclass(frozen=True, slots=True)
class Prediction:
    """What a technique is expected to change, so that it can be judged.

    ``before``/``after`` are in ``unit``; either may be unknown. ``source`` names who said so and
    on which device.
    """

    fact: str
    before: float | None
    after: float | None
    unit: str
    source: str
    device: str | None = None
    shape: str | None = None


@dataclass(frozen=True, slots=True)
class Decision:
    """What the compiler must, and must not, make of a kernel or of a piece of its source.

    Args:
        must: names of :mod:`flashcore.model.decisions`; a number before one is the least count of instructions.
        function: the piece is this function; ``mark``: the statement at this comment; ``quote``: at this code.
    """

    must: tuple[str, ...] = ()
    must_not: tuple[str, ...] = ()
    function: str = ""
    mark: str = ""
    quote: str = ""

    @property
    def place(self) -> str:
        """The piece in words; empty for the whole kernel."""
        return next((f"{n} {v!r}" for n in ("function", "mark", "quote") if (v := getattr(self, n))), "")

    def __str__(self) -> str:
        texts = [f"must {', '.join(self.must)}"] if self.must else []
        texts += [f"must not {', '.join(self.must_not)}"] if self.must_not else []
        return ", ".join(texts) + (f" at {self.place}" if self.place else "")


@dataclass(frozen=True, slots=True)
class Budget:
    """A limit on a fact. One on a ``decision`` limits the number of its names that do not hold, to 0.

    ``variants``, ``archs``, ``shapes``, ``kernels`` are globs that say where it holds; ``device``
    restricts it to GPUs whose name contains that text. Exactly one or both of ``minimum`` and
    ``maximum`` are set (``minimum <= value <= maximum``), in ``unit``.
    """

    name: str
    fact: str
    unit: str
    tier: Tier
    severity: Severity
    source: str
    minimum: float | None = None
    maximum: float | None = None
    stretch: float | None = None
    variants: tuple[str, ...] = ("*",)
    archs: tuple[str, ...] = ("*",)
    shapes: tuple[str, ...] = ("*",)
    kernels: tuple[str, ...] = ("*",)
    device: str | None = None
    decision: Decision | None = None


@dataclass(frozen=True, slots=True)
class Waiver:
    """A known miss: the accepted value and the reason. Worse than accepted is a fail."""

    budget: str
    variants: tuple[str, ...]
    archs: tuple[str, ...]
    shapes: tuple[str, ...]
    kernels: tuple[str, ...]
    accepted: float
    reason: str
    expires: str | None = None  # ISO date; past it the waiver no longer holds


RuleSeverity = Literal["fail", "show", "ignore"]


@dataclass(frozen=True, slots=True)
class GateRule:
    """How facts may differ from their baseline, where the globs match; of several the last one counts.

    ``tolerance`` is a share of the baseline's value, ``None`` leaves it as it is. A rule looser than the default one
    has a ``reason``, and holds until ``expires`` (ISO date).
    """

    facts: tuple[str, ...]
    severity: RuleSeverity
    tolerance: float | None = None
    variants: tuple[str, ...] = ("*",)
    archs: tuple[str, ...] = ("*",)
    shapes: tuple[str, ...] = ("*",)
    kernels: tuple[str, ...] = ("*",)
    reason: str = ""
    expires: str | None = None


@dataclass(frozen=True, slots=True)
class GatePolicy:
    """What the gate compares with: the baseline's file within the suite's folder, if one is named, and the rules."""

    baseline: str | None = None
    rules: tuple[GateRule, ...] = ()


@dataclass(frozen=True, slots=True)
class Where:
    """The hardware that a variant supports. ``unsupported`` maps an arch to the reason it is left out."""

    archs: tuple[str, ...]
    shapes: tuple[str, ...] = ("*",)
    unsupported: Mapping[str, str] = field(default_factory=dict)


# --- kinds of variant -----------------------------------------------------------------------------
#
# ``type`` names a kind in JSON. ``file`` is relative to the suite. ``compiler`` is the one whose release decides the
# static facts; empty where nothing is compiled here.


@dataclass(frozen=True, slots=True)
class CudaSource:
    """A CUDA file that declares its own launch plan (``flashcore/launch.h``)."""

    file: str
    type: Literal["cuda_source"] = "cuda_source"
    compiler: ClassVar[str] = "nvcc"


@dataclass(frozen=True, slots=True)
class ForeignLauncher:
    """A CUDA file with a launcher that is used unchanged; its launch plan is recorded (``flashcore/launcher.h``)."""

    file: str
    type: Literal["foreign_launcher"] = "foreign_launcher"
    compiler: ClassVar[str] = "nvcc"


class _InFile:
    """A function of a Python file: ``matmul.py:matmul``."""

    __slots__ = ()
    callable: str

    @property
    def file(self) -> str:
        return self.callable.partition(":")[0]


@dataclass(frozen=True, slots=True)
class AheadOfTime(_InFile):
    """A Python function (``matmul.py:matmul``) that launches kernels of a language, compiled without a GPU."""

    language: str
    callable: str
    type: Literal["ahead_of_time"] = "ahead_of_time"

    @property
    def compiler(self) -> str:
        return self.language


@dataclass(frozen=True, slots=True)
class RecordedCubins(_InFile):
    """A Python function whose kernels were recorded on a GPU: ``<folder>/<arch>/*.cubin``."""

    folder: str
    callable: str
    type: Literal["recorded_cubins"] = "recorded_cubins"
    language: ClassVar[str] = "triton"  # which wrote the cache that they were copied from
    compiler: ClassVar[str] = ""


@dataclass(frozen=True, slots=True)
class PythonCallable(_InFile):
    """A Python function that others are compared with: what torch or a library does."""

    callable: str
    type: Literal["python_callable"] = "python_callable"
    compiler: ClassVar[str] = ""


@dataclass(frozen=True, slots=True)
class ImportedKernel:
    """A kernel of an imported report, by its full name: it is not built here, and taken to be compiled by nvcc."""

    name: str
    type: Literal["imported_kernel"] = "imported_kernel"
    file: ClassVar[str] = ""
    compiler: ClassVar[str] = "nvcc"


@dataclass(frozen=True, slots=True)
class Binary:
    """A library or another file with machine code, by its path: it is only read, whatever compiled it."""

    name: str
    type: Literal["binary"] = "binary"
    file: ClassVar[str] = ""
    compiler: ClassVar[str] = ""


Cuda = CudaSource | ForeignLauncher
#: Functions whose kernels are known before they run.
CompiledCallable = AheadOfTime | RecordedCubins
Kind = Cuda | CompiledCallable | PythonCallable | ImportedKernel | Binary


def kind_of(entry: Mapping[str, Any], languages: Collection[str]) -> Kind:
    """The kind that a variant's keys in a manifest declare: ``source``, ``callable``, ``cubins``, ``plan``.

    Args:
        languages: the values of ``cubins`` that name a language; any other is a folder.
    """
    match entry:
        case {"callable": str(function), "cubins": str(cubins)}:
            return AheadOfTime(cubins, function) if cubins in languages else RecordedCubins(cubins, function)
        case {"callable": str(function)}:
            return PythonCallable(function)
        case {"source": str(file), "plan": "recorded"}:
            return ForeignLauncher(file)
    return CudaSource(entry["source"])


def manifest_keys(kind: Kind) -> dict[str, str]:
    """The keys of a variant in a manifest that declare its kind; the inverse of :func:`kind_of`."""
    match kind:
        case CudaSource(file):
            return {"source": file}
        case ForeignLauncher(file):
            return {"source": file, "plan": "recorded"}
        case AheadOfTime(cubins, function) | RecordedCubins(cubins, function):
            return {"callable": function, "cubins": cubins}
        case PythonCallable(function):
            return {"callable": function}
    return {}


@dataclass(frozen=True, slots=True)
class Variant:
    """One way to solve a problem. ``config`` holds the macros of a CUDA file, or the keyword arguments of a function
    whose kernels are known."""

    name: str
    problem: str
    kind: Kind
    technique: str
    where: Where
    roof: str  # the dtype of its compute roof: fp16_tensor, fp32, ...
    tolerance: str
    tolerance_reason: str
    config: Mapping[str, int | float | str | bool] = field(default_factory=dict)
    parent: str | None = None
    document: str | None = None  # where it comes from
    predictions: tuple[Prediction, ...] = ()
    also: str = ""  # other differences from its parent: the step is not only of the technique

    @property
    def is_reference(self) -> bool:
        """Whether it is a reference: others are compared with it, and it has no budgets and no recorded kernels."""
        return isinstance(self.kind, PythonCallable)

    @property
    def imported(self) -> str:
        """The full name of the kernel in an imported report, or a binary's path; empty for what is built here."""
        return self.kind.name if isinstance(self.kind, ImportedKernel | Binary) else ""

    @property
    def origin(self) -> str:
        """The CUDA file, the function, or the full name of the imported kernel."""
        return self.imported or next(iter(manifest_keys(self.kind).values()))

    def runs_on(self, shape: Shape) -> bool:
        """Whether the manifest has this case at all: same problem, and the shape is one it supports."""
        return self.problem == shape.problem and any(fnmatchcase(shape.name, glob) for glob in self.where.shapes)


@dataclass(frozen=True, slots=True)
class Argument:
    """One argument of a problem's operator.

    For tensors ``dims`` gives each dimension by a shape parameter (``C``), one and a number (``C/2``, ``C+1``), or a
    number; ``dtype`` is torch's name of the element type. ``default`` is the value of a number that is not given.

    A tensor that is ``mutable`` is written: an output, or ``inout``, which holds an input before the call. ``optional``
    ones may be absent. ``strides`` says how a tensor may lie: contiguous if empty; ``rows``: its last dimension is, and
    each row begins on 16 bytes; ``any``.
    """

    name: str
    kind: Literal["tensor", "int", "float", "bool"]
    mutable: bool = False
    dims: tuple[str, ...] = ()
    dtype: str = ""
    default: int | float | bool | None = None
    inout: bool = False
    optional: bool = False
    strides: Literal["", "rows", "any"] = ""

    def absent(self, params: Mapping[str, int | float | str | bool]) -> bool:
        """Whether a shape's params say that it is not given."""
        return self.optional and params.get(self.name) is False

    def sizes(self, params: Mapping[str, int | float | str | bool]) -> tuple[int, ...]:
        """A tensor's sizes on a shape.

        Raises:
            ValueError: a division with a remainder.
        """
        return tuple(_size(dim, params) for dim in self.dims)


DIMENSION = re.compile(r"(?P<name>[A-Za-z][A-Za-z0-9_]*)?((?P<sign>[-+*/])?(?P<number>[1-9][0-9]*))?")


def _size(dim: str, params: Mapping[str, int | float | str | bool]) -> int:
    part = DIMENSION.fullmatch(dim)
    assert part is not None  # the manifest is held to it
    size, number = int(params[part["name"]]) if part["name"] else 0, int(part["number"] or 0)
    if part["sign"] == "/" and size % number:
        raise ValueError(f"{dim}: {size} is no multiple of {number}")
    return {"*": size * number, "/": size // (number or 1), "-": size - number}.get(part["sign"], size + number)


@dataclass(frozen=True, slots=True)
class Problem:
    """What is computed: the operator's schema and the Python file that computes the reference answer."""

    name: str
    file: str
    schema: str
    arguments: tuple[Argument, ...]
    dims: tuple[str, ...]  # every dimension, in the order of first use
    seeds: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Suite:
    """A validated manifest. Paths in it are relative to ``root``."""

    name: str
    title: str
    root: str
    nvcc: str  # the release its static budgets were set with, as "13.0"
    archs: tuple[str, ...]
    baseline: str
    problems: Mapping[str, Problem]
    shapes: Mapping[str, Shape]
    variants: Mapping[str, Variant]
    budgets: tuple[Budget, ...]
    waivers: tuple[Waiver, ...]
    notes: tuple[str, ...] = ()
    include: tuple[str, ...] = ()
    gate: GatePolicy = field(default_factory=GatePolicy)
    manifests: tuple[str, ...] = ()  # the files that suite.toml includes
    languages: Mapping[str, str] = field(default_factory=dict)  # language → release, as for nvcc
    tables: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)  # of plugins: table → name → its keys

    @property
    def usual_arch(self) -> str:
        """The arch whose static facts are shown where no GPU decides it: the last of the archs that most variants are
        for; empty for a suite without archs."""
        named = Counter(arch for v in self.variants.values() for arch in v.where.archs)
        return max(reversed(self.archs), key=lambda arch: named[arch], default="")

    @property
    def uses_nvcc(self) -> bool:
        """Whether any variant is a CUDA file."""
        return any(isinstance(v.kind, Cuda) for v in self.variants.values())

    def rows(self, shapes: Iterable[Shape]) -> list[list[Shape]]:
        """The shapes by computation: identical ones are one row of every table, and rank as the row's first does."""
        origins = ((self.shapes.get(s.same_as, s), s) for s in shapes)
        rows = grouped(((origin.problem, frozenset(origin.params.items())), s) for origin, s in origins)
        return [[replace(s, rank_by=row[0].rank_by) for s in row] for row in rows.values()]

    def role(self, variant: Variant) -> Literal["peer", "baseline", "variant"]:
        """A variant's role in tables and frames."""
        return "peer" if variant.is_reference else "baseline" if variant.name == self.baseline else "variant"

    def matching(self, glob: str) -> list[str]:
        """The variants whose names match, without references."""
        return [n for n, v in self.variants.items() if fnmatchcase(n, glob) and not v.is_reference]
