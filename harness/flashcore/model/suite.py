"""A suite's declarations as frozen data: problems, shapes, variants, budgets and gate rules.

Measured and recorded data is in :mod:`flashcore.model.record`.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Collection, Hashable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from fnmatch import fnmatchcase
from typing import Any, ClassVar, Literal

from flashcore.model.groups import grouped
from flashcore.model.text import matches_any

Stage = Literal["check", "bench", "profile", "sanitize"]
#: The stages that need a GPU, in order. Requesting one also requests those before it.
GPU_STAGES: tuple[Stage, ...] = ("check", "bench", "profile", "sanitize")
Tier = Literal["static", "counters", "timing"]
TIERS: tuple[Tier, ...] = ("static", "counters", "timing")
#: How a call is timed; see :mod:`flashcore.stages.bench.timing`.
TimingMode = Literal["isolated", "back_to_back", "cold"]
TIMING_MODES: tuple[TimingMode, ...] = ("isolated", "back_to_back", "cold")
#: The mode that ranks; eager only among imported times.
RankMode = TimingMode | Literal["eager"]
Severity = Literal["limit", "goal"]
#: A shape's parameters, or a variant's config.
Params = Mapping[str, int | float | str | bool]


@dataclass(frozen=True, slots=True)
class Shape:
    """Named parameters of a problem, and the stages that use them.

    ``rank_by`` is the mode by which variants are ranked and compared. At least ``repeats`` calls of a variant must
    agree bitwise. ``same_as`` names a shape of another problem with the same computation.
    """

    name: str
    problem: str
    params: Params
    stages: tuple[Stage, ...]
    rank_by: RankMode = "isolated"
    repeats: int = 0
    same_as: str = ""

    @property
    def time(self) -> str:
        """The ranking fact, such as ``isolated_p50``."""
        return f"{self.rank_by}_p50"

    @property
    def params_text(self) -> str:
        """The parameters as text: ``B=1, H=8, S=512, D=64``."""
        return ", ".join(f"{k}={v}" for k, v in self.params.items())


@dataclass(frozen=True, slots=True)
class Prediction:
    """The predicted effect of a technique on a fact.

    ``before`` and ``after`` are in ``unit``; either may be unknown. ``source`` names the document that predicts it,
    ``device`` the GPU that it is for.
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
    """Instructions that a kernel, or a piece of its source, must and must not compile to.

    Args:
        must: names of :mod:`flashcore.model.compiler_decisions`; a number before one is the least count.
        function: the piece is this function; ``mark``: the statement at this comment; ``quote``: at this code.
    """

    must: tuple[str, ...] = ()
    must_not: tuple[str, ...] = ()
    function: str = ""
    mark: str = ""
    quote: str = ""

    @property
    def requirements(self) -> tuple[str, ...]:
        """``must``, and ``no local`` for what must not be."""
        return (*self.must, *(f"no {name}" for name in self.must_not))

    def covers(self, other: Decision) -> bool:
        """Whether it has the other's requirements at the same place."""
        return self.place == other.place and {*self.requirements} >= {*other.requirements}

    @property
    def place(self) -> str:
        """The piece in words; empty for the whole kernel."""
        return "".join(f"{n} {text!r}" for n in ("function", "mark", "quote") if (text := getattr(self, n)))

    def __str__(self) -> str:
        return f"must have {', '.join(self.requirements)}" + (f" at {self.place}" if self.place else "")


@dataclass(frozen=True, slots=True)
class Budget:
    """A limit on a fact. One on a ``decision`` limits the number of its names that do not hold, to 0.

    It applies where the globs ``variants``, ``archs``, ``shapes`` and ``kernels`` match, on GPUs whose name contains
    ``device``. ``minimum``, ``maximum`` or both are set, in ``unit`` (``minimum <= value <= maximum``).
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
    """An accepted miss, with the accepted value and the reason. A worse value fails."""

    budget: str
    variants: tuple[str, ...]
    archs: tuple[str, ...]
    shapes: tuple[str, ...]
    kernels: tuple[str, ...]
    accepted: float
    reason: str
    expires: str | None = None  # ISO date, the last day of the waiver


RuleSeverity = Literal["fail", "show", "ignore"]


@dataclass(frozen=True, slots=True)
class GateRule:
    """How far facts that match the globs may differ from their baseline. The last matching rule applies.

    ``tolerance`` is a share of the baseline's value; ``None`` keeps the previous one. A rule that is looser than the
    default needs a ``reason``, and applies until ``expires`` (ISO date).
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
    """The gate's baseline file, relative to the suite's folder, and its rules."""

    baseline: str | None = None
    rules: tuple[GateRule, ...] = ()


@dataclass(frozen=True, slots=True)
class Where:
    """The archs and shapes (globs) that a variant supports. ``unsupported`` maps an excluded arch to the reason."""

    archs: tuple[str, ...]
    shapes: tuple[str, ...] = ("*",)
    unsupported: Mapping[str, str] = field(default_factory=dict)


# --- kinds of variant -----------------------------------------------------------------------------
#
# ``type`` names a kind in JSON. ``file`` is relative to the suite. ``compiler`` is the one whose release determines the
# static facts; empty if the suite compiles nothing.


@dataclass(frozen=True, slots=True)
class CudaSource:
    """A CUDA file that declares its own launch plan (``flashcore/launch.h``)."""

    file: str
    type: Literal["cuda_source"] = "cuda_source"
    compiler: ClassVar[str] = "nvcc"


@dataclass(frozen=True, slots=True)
class ForeignLauncher:
    """A CUDA file with a launcher of any form; its launch plan is recorded (``flashcore/launcher.h``)."""

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
    language: ClassVar[str] = "triton"  # the cubins are copied from its cache
    compiler: ClassVar[str] = ""


@dataclass(frozen=True, slots=True)
class PythonCallable(_InFile):
    """A Python function that serves as a reference, for example torch's or another library's."""

    callable: str
    type: Literal["python_callable"] = "python_callable"
    compiler: ClassVar[str] = ""


@dataclass(frozen=True, slots=True)
class ImportedKernel:
    """A kernel of an imported report, by its full name. It is not built; nvcc is assumed as its compiler."""

    name: str
    type: Literal["imported_kernel"] = "imported_kernel"
    file: ClassVar[str] = ""
    compiler: ClassVar[str] = "nvcc"


@dataclass(frozen=True, slots=True)
class Binary:
    """A library or other file with machine code, by its path. It is only read."""

    name: str
    type: Literal["binary"] = "binary"
    file: ClassVar[str] = ""
    compiler: ClassVar[str] = ""


Cuda = CudaSource | ForeignLauncher
#: Python functions whose kernels are compiled before they run.
CompiledCallable = AheadOfTime | RecordedCubins
VariantKind = Cuda | CompiledCallable | PythonCallable | ImportedKernel | Binary


def kind_of(entry: Mapping[str, Any], languages: Collection[str]) -> VariantKind:
    """The kind that a variant's manifest keys declare: ``source``, ``callable``, ``cubins``, ``plan``.

    Args:
        languages: the values of ``cubins`` that name a language; any other value is a folder.
    """
    match entry:
        case {"callable": str(function), "cubins": str(cubins)}:
            return AheadOfTime(cubins, function) if cubins in languages else RecordedCubins(cubins, function)
        case {"callable": str(function)}:
            return PythonCallable(function)
        case {"source": str(file), "plan": "recorded"}:
            return ForeignLauncher(file)
    return CudaSource(entry["source"])


def manifest_keys(kind: VariantKind) -> dict[str, str]:
    """The manifest keys that declare a kind; the inverse of :func:`kind_of`."""
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
    """One way to solve a problem. ``config`` has the macros of a CUDA file, or the keyword arguments of a
    :data:`CompiledCallable`."""

    name: str
    problem: str
    kind: VariantKind
    technique: str
    where: Where
    roof: str  # the dtype of its compute roof: fp16_tensor, fp32, ...
    tolerance: str
    tolerance_reason: str
    config: Params = field(default_factory=dict)
    parent: str | None = None
    document: str | None = None  # its source document
    predictions: tuple[Prediction, ...] = ()
    also: str = ""  # differences from its parent besides the technique
    # Of a CUDA file, the suite's first: nvcc's flags; names or files of libraries; Python packages with C++ headers.
    # Of a reference: the Python packages that it imports.
    flags: tuple[str, ...] = ()
    libraries: tuple[str, ...] = ()
    packages: tuple[str, ...] = ()

    @property
    def is_reference(self) -> bool:
        """Whether others are only compared with it: a reference has no budgets and no recorded kernels."""
        return isinstance(self.kind, PythonCallable)

    @property
    def imported(self) -> str:
        """The full name of the kernel in an imported report, or a binary's path; empty for all other kinds."""
        return self.kind.name if isinstance(self.kind, ImportedKernel | Binary) else ""

    def time_on(self, shape: Shape) -> str:
        """The fact of a time: of an imported kernel ncu's, unlike of an imported benchmark."""
        return "ncu_duration" if self.imported and "bench" not in shape.stages else shape.time

    @property
    def origin(self) -> str:
        """The CUDA file, the function, or the full name of the imported kernel."""
        return self.imported or next(iter(manifest_keys(self.kind).values()))

    def runs_on(self, shape: Shape) -> bool:
        """Whether this is a case of the suite: the shape belongs to the variant's problem, and is supported."""
        return self.problem == shape.problem and matches_any(shape.name, self.where.shapes)


@dataclass(frozen=True, slots=True)
class Argument:
    """One argument of a problem's operator.

    A tensor's ``dims`` are shape parameters (``C``), a parameter and a number (``C/2``, ``C+1``), or numbers; ``dtype``
    is torch's name of its element type. ``default`` is the value of an omitted scalar.

    A ``mutable`` tensor is written: an output, or ``inout``, which has an input's values before the call. An
    ``optional`` one may be absent. ``strides`` is a tensor's accepted layout: contiguous if empty; ``rows``: contiguous
    in the last dimension, each row aligned to 16 bytes; ``any``.
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

    def absent(self, params: Params) -> bool:
        """Whether a shape's params omit it."""
        return self.optional and params.get(self.name) is False

    def sizes(self, params: Params) -> tuple[int, ...]:
        """A tensor's sizes on a shape.

        Raises:
            ValueError: a division with a remainder.
        """
        return tuple(_size(dim, params) for dim in self.dims)


DIMENSION = re.compile(r"(?P<name>[A-Za-z][A-Za-z0-9_]*)?((?P<sign>[-+*/])?(?P<number>[1-9][0-9]*))?")


def _size(dim: str, params: Params) -> int:
    part = DIMENSION.fullmatch(dim)
    assert part is not None  # the manifest is validated
    size, number = int(params[part["name"]]) if part["name"] else 0, int(part["number"] or 0)
    if part["sign"] == "/" and size % number:
        raise ValueError(f"{dim}: {size} is not a multiple of {number}")
    return {"*": size * number, "/": size // (number or 1), "-": size - number}.get(part["sign"], size + number)


@dataclass(frozen=True, slots=True)
class Problem:
    """The operator's schema, and the Python file that computes the reference answer."""

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
    tables: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)  # plugins' tables: table → name → keys

    @property
    def is_imported(self) -> bool:
        """Whether all its kernels were built elsewhere."""
        return all(v.imported for v in self.variants.values())

    @property
    def usual_arch(self) -> str:
        """The arch whose static facts are shown if no GPU determines it: the one that most variants target, the last of
        equals; empty for a suite without archs."""
        targets = Counter(arch for v in self.variants.values() for arch in v.where.archs)
        return max(reversed(self.archs), key=lambda arch: targets[arch], default="")

    @property
    def uses_nvcc(self) -> bool:
        """Whether any variant is a CUDA file."""
        return any(isinstance(v.kind, Cuda) for v in self.variants.values())

    def rows(self, shapes: Iterable[Shape]) -> list[list[Shape]]:
        """Groups identical shapes into the rows of tables; each shape ranks by the mode of its row's first."""
        rows = grouped((self.computation(s), s) for s in shapes)
        return [[replace(s, rank_by=row[0].rank_by) for s in row] for row in rows.values()]

    def computation(self, shape: Shape) -> Hashable:
        """What identical shapes have in common, in any suite: their problem and parameters."""
        origin = self.shapes.get(shape.same_as, shape)
        return origin.problem, frozenset(origin.params.items())

    def role(self, variant: Variant) -> Literal["reference", "baseline", "variant"]:
        """A variant's role in tables and frames."""
        return "reference" if variant.is_reference else "baseline" if variant.name == self.baseline else "variant"

    def matching(self, glob: str) -> list[str]:
        """The names of the matching variants, without references."""
        return [n for n, v in self.variants.items() if fnmatchcase(n, glob) and not v.is_reference]
