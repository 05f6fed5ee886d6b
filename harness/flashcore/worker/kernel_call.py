"""What the processes that run kernels share: the problem's file, operators, and guarded outputs.

Only children import torch, so it is imported inside the functions here.
"""

from __future__ import annotations

import functools
import importlib.util
import inspect
import itertools
import json
import math
import os
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any

from flashcore.errors import FlashcoreError, UsageError
from flashcore.machine.capabilities import lacking
from flashcore.model.record import Subject
from flashcore.model.suite import Argument, Regime
from flashcore.worker.journal import Journal, Task, child

if TYPE_CHECKING:
    from torch import Tensor

#: Bytes of poison before and after every guarded tensor: as many as it has itself, at least and at most so many.
#: Multiples of what the allocator aligns to.
GUARD_BYTES, GUARD_MOST = 1 << 16, 1 << 24
_ALIGNED = 512
#: Every byte of an output before a call. As any float type this is a NaN.
POISON_BYTE = 0xFF

#: The environment variable that a library reads while it registers its operator.
SUFFIX = "FLASHCORE_OP_SUFFIX"

_CONTRACT = ("make_inputs", "reference", "emulate", "work", "KINDS", "TOLERANCES", "FENCE")


@dataclass(frozen=True, slots=True)
class Case:
    """A variant on a shape, with all that a child process needs to run it.

    ``library`` is the variant's ``.so``; ``callable`` (``peers.py:cudnn``) stands in its place for a peer.
    With neither, the operator is one that the problem's file itself registers. ``root`` and ``library``
    are absolute. ``build`` tells several builds of one variant apart in one process: ``before``.
    ``launches`` is how many kernels its plan launches; a peer has none.
    """

    variant: str
    shape: str
    suite: str
    root: str
    problem_file: str
    params: Mapping[str, int | float | str | bool]
    arguments: tuple[Argument, ...]
    library: str | None
    callable: str | None
    tolerance: str
    seeds: tuple[int, ...]
    roof: str
    build: str = ""
    rank_by: Regime = "isolated"
    launches: int = 0
    repeats: int = 0

    @property
    def name(self) -> str:
        """``variant/shape``, or ``variant/shape@build``."""
        return f"{self.variant}/{self.shape}" + (f"@{self.build}" if self.build else "")

    @property
    def is_peer(self) -> bool:
        return self.callable is not None

    @property
    def subject(self) -> Subject:
        return Subject(variant=self.variant, shape=self.shape)

    def to_json(self) -> dict[str, Any]:
        """As plain JSON, for a task's payload."""
        return {**asdict(self), "params": dict(self.params), "arguments": [asdict(a) for a in self.arguments]}

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Case:
        arguments = tuple(Argument(**{**a, "dims": tuple(a["dims"])}) for a in data["arguments"])
        return cls(**{**data, "arguments": arguments, "seeds": tuple(data["seeds"])})


def load_problem(root: str | Path, file: str) -> ModuleType:
    """The problem's Python file as a module, loaded once per process.

    Raises:
        UsageError: there is no such file, or it lacks part of what a problem defines.
        FlashcoreError: it raises while it is imported.
    """
    module = _load(str(Path(root).resolve() / file))
    missing = [name for name in _CONTRACT if not hasattr(module, name)]
    if missing:
        raise UsageError(
            f"{module.__file__}: expected {', '.join(_CONTRACT)}, found no {', '.join(missing)}\n"
            "  to mend: define them; the problem of the attention suite is an example"
        )
    return module


def work_of(problem: ModuleType, params: Mapping[str, Any], roof: str) -> dict[str, float]:
    """What the problem's formulas say of a variant on that compute roof, which ``work`` may ask for by an argument
    ``roof``: where the FLOPs are done is a matter of the variant.

    Raises:
        UsageError: a value is no amount.
    """
    more = {"roof": roof} if "roof" in inspect.signature(problem.work).parameters else {}
    work: dict[str, Any] = problem.work(dict(params), **more)
    for key, value in work.items():
        if not isinstance(value, (int, float)) or not 0 <= value <= 1e30:  # false for NaN
            found = f"{value:g}" if isinstance(value, float) else f"an {type(value).__name__} that is none"
            raise UsageError(f"{problem.__name__}: work() gives {key!r}: expected a number of 0 to 1e30, found {found}")
    return work


#: What the files of a suite imported of each other, and from which folder.
_siblings: dict[str, Path] = {}


@functools.cache
def _load(path: str) -> ModuleType:
    file = Path(path)
    for name, folder in list(_siblings.items()):
        if folder != file.parent:  # of another suite, or of another revision of this one
            sys.modules.pop(name, None)
            del _siblings[name]
    spec = importlib.util.spec_from_file_location(f"flashcore_{file.stem}_{abs(hash(path)):x}", file)
    if not file.is_file() or spec is None or spec.loader is None:
        raise UsageError(f"{path}: expected a Python file of the suite, found none")
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    sys.path.insert(0, str(file.parent))  # so that a suite's files can import each other
    try:
        spec.loader.exec_module(module)
    except Exception as error:
        del sys.modules[spec.name]
        raise FlashcoreError(
            f"{path}: expected a module that can be imported, found {type(error).__name__}: {error}"
        ) from error
    finally:
        sys.path.remove(str(file.parent))
        for other in file.parent.glob("*.py"):
            if getattr(sys.modules.get(other.stem), "__file__", None) == str(other):
                _siblings[other.stem] = file.parent
    return module


# --- tensors ------------------------------------------------------------------------------------


class Guarded:
    """A tensor between two bands of poison, which grow with it.

    Args:
        fill: the byte that tensor and bands are filled with.
        room: bytes to lie in, :meth:`bytes_of` of them; an allocation of its own unless given.
    """

    def __init__(
        self, sizes: tuple[int, ...], dtype: str, device: str, fill: int = POISON_BYTE, room: Tensor | None = None
    ) -> None:
        import torch

        self._band, size, whole = self._layout(sizes, dtype)
        self.fill = fill
        self._end = self._band + size
        self._buffer = torch.empty(whole, dtype=torch.uint8, device=device) if room is None else room
        self.tensor: Tensor = self._buffer[self._band : self._end].view(getattr(torch, dtype)).view(sizes)
        self.poison()

    @classmethod
    def bytes_of(cls, sizes: tuple[int, ...], dtype: str) -> int:
        """What a tensor takes up with its bands."""
        return cls._layout(sizes, dtype)[2]

    @staticmethod
    def _layout(sizes: tuple[int, ...], dtype: str) -> tuple[int, int, int]:
        """Bytes of a band, of the tensor, and of all."""
        import torch

        size = math.prod(sizes) * int(getattr(torch, dtype).itemsize)
        whole = -(-size // _ALIGNED) * _ALIGNED
        band = min(max(whole, GUARD_BYTES), GUARD_MOST)
        return band, size, whole + 2 * band

    def poison(self) -> None:
        """Fills tensor and bands anew."""
        self._buffer.fill_(self.fill)

    def damage(self) -> str:
        """Says which bytes beside the tensor were written; empty if none."""
        for where, band, origin in (
            ("before its first", self._buffer[: self._band], self._band),
            ("past its last", self._buffer[self._end :], -1),
        ):
            touched = (band != self.fill).nonzero().flatten()
            if touched.numel():
                first = int(touched[0])
                distance = origin - int(touched[-1]) if origin > 0 else first + 1
                return f"{touched.numel()} bytes written {where} element, the nearest {distance} bytes off"
        return ""

    def unwritten(self) -> Tensor:
        """Mask of the elements that still hold nothing but poison."""
        import torch

        size = self.tensor.element_size()
        raw = self._buffer[self._band : self._end].view(-1, size)
        mask: Tensor = (raw == self.fill).all(dim=1).view(self.tensor.shape)
        return mask if self.tensor.numel() else torch.zeros_like(mask)


class Outputs(dict[str, "Tensor"]):
    """A call's outputs by name. ``guards`` holds the bands around those that an operator writes.

    All lie in one allocation, band by band: what is written between them is written into a band.

    Args:
        wanted: sizes and element type of each output.
    """

    def __init__(
        self, wanted: Mapping[str, tuple[tuple[int, ...], str]], device: str = "cpu", fill: int = POISON_BYTE
    ) -> None:
        import torch

        rooms = [Guarded.bytes_of(*one) for one in wanted.values()]
        arena = torch.empty(sum(rooms), dtype=torch.uint8, device=device)
        parts = [arena[end - room : end] for room, end in zip(rooms, itertools.accumulate(rooms), strict=True)]
        self.guards = {
            name: Guarded(*one, device, fill, room) for (name, one), room in zip(wanted.items(), parts, strict=True)
        }
        super().__init__({name: guard.tensor for name, guard in self.guards.items()})

    def poison(self) -> None:
        """Fills every guarded output and its bands with poison anew."""
        for guard in self.guards.values():
            guard.poison()


def guard_inputs(inputs: Mapping[str, Any]) -> tuple[dict[str, Any], dict[str, Guarded]]:
    """Copies of the tensors between bands of NaN, and these bands: what is read beside an input shows in the answer,
    and what is written there in the bands."""
    import torch

    copies, guards = dict(inputs), {}
    for name, value in inputs.items():
        if isinstance(value, torch.Tensor) and value.is_contiguous():
            guards[name] = Guarded(tuple(value.shape), str(value.dtype).removeprefix("torch."), str(value.device))
            copies[name] = guards[name].tensor.copy_(value)
    return copies, guards


# --- calls --------------------------------------------------------------------------------------


class Caller:
    """Runs one case: the operator of its library, or its Python callable.

    Args:
        problem: the problem's module; loaded when not given.
        device: where the outputs lie.

    Raises:
        FlashcoreError: the library cannot be loaded, or does not hold the operator.
        UsageError: there is no such callable.
    """

    def __init__(self, case: Case, problem: ModuleType | None = None, device: str = "cuda") -> None:
        self.case = case
        self.device = device
        self.problem = problem or load_problem(case.root, case.problem_file)
        self.target = _callable(case) if case.callable else operator(case.suite, case.variant, case.library, case.build)

    def outputs(self, fill: int = POISON_BYTE) -> Outputs:
        """Freshly poisoned outputs, for an operator to write; for a peer, which makes its own, none."""
        wanted = {
            a.name: (tuple(int(self.case.params[d]) for d in a.dims), a.dtype)
            for a in self.case.arguments
            if a.mutable and not self.case.is_peer
        }
        return Outputs(wanted, self.device, fill)

    def arguments(self, inputs: Mapping[str, Any], outputs: Mapping[str, Any]) -> list[Any]:
        """The operator's arguments in the order of the schema."""
        return [(outputs if a.mutable else inputs)[a.name] for a in self.case.arguments]

    def bind(self, inputs: Mapping[str, Any], outputs: Mapping[str, Any]) -> Callable[[], Any]:
        """The call with nothing left to do but to call it; a peer's answer is its return value."""
        if self.case.is_peer:
            return functools.partial(self.target, **inputs)
        return functools.partial(self.target, *self.arguments(inputs, outputs))

    def call(self, inputs: Mapping[str, Any], outputs: Outputs) -> None:
        """One call; afterwards ``outputs`` holds the answer (not synchronised)."""
        answer = self.bind(inputs, outputs)()
        if self.case.is_peer:
            names = [a.name for a in self.case.arguments if a.mutable]
            values = answer if isinstance(answer, (tuple, list)) else (answer,)
            if len(values) < len(names):
                raise FlashcoreError(
                    f"{self.case.callable}: expected {len(names)} tensors ({', '.join(names)}), found {len(values)}"
                )
            outputs.update(zip(names, values, strict=False))


@functools.cache
def operator(suite: str, variant: str, library: str | None, build: str = "") -> Callable[..., None]:
    """``torch.ops.flashcore_<suite>.<variant>`` out of its library, with a fake kernel registered.

    Args:
        build: which of several builds this is; its operator is registered as ``<variant>__<build>``.

    Raises:
        FlashcoreError: the library cannot be loaded, or does not register that operator.
    """
    import torch

    suffix = f"__{build}" if build else os.environ.get(SUFFIX, "")
    if library is not None:
        try:
            with _suffixed(suffix):
                torch.ops.load_library(library)  # type: ignore[no-untyped-call]
        except OSError as error:
            raise FlashcoreError(
                f"{library}: expected a library that torch {torch.__version__} can load, found: {error}\n"
                "  to mend: build it again with this environment"
            ) from error
    name = variant + (suffix if library is not None else "")
    namespace = f"flashcore_{suite}"
    try:
        packet = getattr(getattr(torch.ops, namespace), name)
    except AttributeError as error:
        raise FlashcoreError(
            f"{library or 'the problem file'}: expected the operator {namespace}::{name}, found none"
        ) from error
    if not torch._C._dispatch_has_kernel_for_dispatch_key(f"{namespace}::{name}", "Meta"):
        # The operator writes its outputs and returns nothing, so there is nothing to infer.
        torch.library.register_fake(f"{namespace}::{name}", lambda *_: None)
    return packet.default  # type: ignore[no-any-return]


@contextmanager
def _suffixed(suffix: str) -> Iterator[None]:
    """What is loaded meanwhile registers its operator under its name with this suffix."""
    before = os.environ.get(SUFFIX)
    os.environ[SUFFIX] = suffix
    try:
        yield
    finally:
        if before is None:
            del os.environ[SUFFIX]
        else:
            os.environ[SUFFIX] = before


def _callable(case: Case) -> Callable[..., Any]:
    file, _, name = (case.callable or "").partition(":")
    module = _load(str(Path(case.root).resolve() / file))
    found = getattr(module, name, None)
    if not callable(found):
        raise UsageError(f"{module.__file__}: expected a function {name}, found {found!r}")
    return found  # type: ignore[no-any-return]


def synchronize(device: str) -> None:
    """Waits for the device; raises what its last work ran into."""
    if device != "cpu":
        import torch

        torch.cuda.synchronize()


def is_poisoned(device: str) -> bool:
    """Whether the device is of no more use to this process, after an error that sticks.

    A launch that was refused (too much shared memory) does not stick, but the runtime may report it once
    more, to the next innocent launch: so the device gets two tries at a kernel of its own.
    """
    import torch

    for _ in range(2):
        try:
            torch.ones(1, device=device).add_(1)
            synchronize(device)
        except Exception:
            continue
        return False
    return True


def require_device(device: str) -> None:
    """Imports torch, and raises :class:`CapabilityError` when this process cannot use the device."""
    import torch  # here and not in the first task, whose time it would be

    if device != "cpu" and not torch.cuda.is_available():
        build = f"torch {torch.__version__}, CUDA {torch.version.cuda or 'not in this build'}"
        raise lacking("gpu", build)


def serve(
    arguments: Sequence[str],
    perform: Callable[[Task, Journal], Mapping[str, Any] | None],
    prepare: Callable[[], object] = lambda: None,
) -> int:
    """The program of a child that runs kernels on the device that its tasks' payloads name: ``TASKFILE JOURNAL``.
    Gives its exit code. ``prepare`` runs once the device is there; both may raise a :class:`CapabilityError`."""
    device = json.loads(Path(arguments[0]).read_text("utf-8"))["tasks"][0]["payload"]["device"]

    def ready() -> None:
        require_device(device)
        prepare()

    return child(arguments, perform, prepare=ready, is_poisoned=lambda: is_poisoned(device))
