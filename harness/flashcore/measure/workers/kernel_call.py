"""One call of a kernel: a case, its operator or Python callable, and what a process that calls it needs.

Only children import torch, so it is imported inside the functions here.
"""

from __future__ import annotations

import atexit
import contextlib
import ctypes
import functools
import importlib
import os
import shutil
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any, NoReturn

from flashcore.errors import FlashcoreError, UsageError
from flashcore.measure.machine.capabilities import lacking
from flashcore.measure.workers.guarded import POISON_BYTE, Outputs, write
from flashcore.measure.workers.journal import Journal, Task, child
from flashcore.measure.workers.problem_file import load_file, load_problem
from flashcore.model import plugin
from flashcore.model.record import Subject
from flashcore.model.suite import Argument, Regime
from flashcore.readers import cubin

if TYPE_CHECKING:
    from torch import Tensor

#: The environment variable that a library reads while it registers its operator.
SUFFIX = "FLASHCORE_OP_SUFFIX"


@dataclass(frozen=True, slots=True)
class Case:
    """A variant on a shape, with all that a child process needs to run it.

    ``library`` is the variant's ``.so``; ``callable`` (``peers.py:cudnn``) stands in its place for a peer.
    A callable with ``calls``, the launches that it was compiled for, is a variant and gets ``config`` by keyword;
    ``language`` is the module of the plugin that compiled it.
    With neither, the operator is one that the problem's file itself registers. ``root`` and ``library``
    are absolute. ``variant`` is ``name@build`` where one process runs several builds of a variant: ``wide@before``.
    ``launches`` is how many kernels its plan launches; a peer has none. ``operator`` is the hash of the library's host
    code, which registers the operator.
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
    flop: float | None
    rank_by: Regime = "isolated"
    launches: int = 0
    repeats: int = 0
    config: Mapping[str, int | float | str | bool] = field(default_factory=dict)
    calls: tuple[Sequence[Mapping[str, Any]], ...] = ()
    operator: str = ""
    language: str = ""

    @property
    def name(self) -> str:
        """``variant/shape``."""
        return f"{self.variant}/{self.shape}"

    @property
    def is_reference(self) -> bool:
        return self.callable is not None and not self.calls

    @property
    def was_recorded(self) -> bool:
        """Whether only the code of its kernels is known."""
        return bool(self.calls) and "arguments" not in self.calls[0][0]

    @property
    def subject(self) -> Subject:
        return Subject(variant=self.variant, shape=self.shape)

    def to_json(self) -> dict[str, Any]:
        """As plain JSON, for a task's payload."""
        return asdict(self)

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Case:
        arguments = tuple(Argument(**{**a, "dims": tuple(a["dims"])}) for a in data["arguments"])
        return cls(**{**data, "arguments": arguments, "seeds": tuple(data["seeds"]), "calls": tuple(data["calls"])})


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
        if case.was_recorded:
            _cubins_left()
        elif case.calls:  # what Triton autotunes is then the same in every stage
            os.environ.setdefault("TRITON_CACHE_AUTOTUNING", "1")
        self.target = _callable(case) if case.callable else operator(case.suite, case.variant, case.library)
        if case.calls:
            self.target = AsCompiled(case, functools.partial(self.target, **case.config))

    def outputs(self, fill: int = POISON_BYTE, *, inout: bool = True) -> Outputs:
        """Freshly poisoned tensors for a call to write; a peer makes its own, except those that are inputs too.

        Args:
            inout: whether these are among them.
        """
        wanted = {
            a.name: (a.sizes(self.case.params), a.dtype)
            for a in self.case.arguments
            if (inout if a.inout else a.mutable and not self.case.is_reference)
        }
        return Outputs(wanted, self.device, fill)

    def load(self, inputs: Mapping[str, Any], outputs: Mapping[str, Tensor]) -> None:
        """Writes into outputs that are inputs too what they hold before a call."""
        for a in self.case.arguments:
            if a.inout:
                write(outputs[a.name], initial(self.case, a, inputs))

    def arguments(self, inputs: Mapping[str, Any], outputs: Mapping[str, Any]) -> list[Any]:
        """The operator's arguments in the order of the schema.

        Raises:
            UsageError: inputs are not what the schema says.
        """
        return [outputs[a.name] if a.mutable else _given(self.case, a, inputs) for a in self.case.arguments]

    def bind(self, inputs: Mapping[str, Any], outputs: Mapping[str, Any]) -> Callable[[], Any]:
        """The call with its arguments bound; a peer's answer is its return value. Outputs that are inputs too must be
        loaded before each call."""
        if self.case.is_reference:
            written = {a.name: outputs[a.name] for a in self.case.arguments if a.inout}
            return functools.partial(self.target, **{**inputs, **written})
        return functools.partial(self.target, *self.arguments(inputs, outputs))

    def call(self, inputs: Mapping[str, Any], outputs: Outputs) -> None:
        """One call; afterwards ``outputs`` holds the answer (not synchronised)."""
        if self.case.is_reference:  # not what the last call returned
            outputs.update({name: guard.tensor for name, guard in outputs.guards.items()})
        self.load(inputs, outputs)
        answer = self.bind(inputs, outputs)()
        if self.case.is_reference:
            outputs.update(self.named(answer))

    def named(self, answer: Any) -> dict[str, Tensor]:
        """What a peer returned, by the names of the outputs."""
        names = [a.name for a in self.case.arguments if a.mutable]
        values = answer if isinstance(answer, (tuple, list)) else (answer,)
        if len(values) < len(names):
            raise FlashcoreError(
                f"{self.case.callable}: expected {len(names)} tensors ({', '.join(names)}), found {len(values)}"
            )
        return dict(zip(names, values, strict=False))


def _given(case: Case, argument: Argument, inputs: Mapping[str, Any]) -> Any:
    """The value of one that is only an input.

    Raises:
        UsageError: it is missing, or given where the shape says that it is not.
    """
    name, value = argument.name, inputs.get(argument.name, argument.default)
    declared = case.params.get(name)
    if argument.optional and isinstance(declared, bool) and declared is (value is None):
        expected = (
            f"a tensor {name}, as the shape {case.shape} says"
            if declared
            else f"None for {name}, as {name} = false says"
        )
        raise UsageError(f"{case.problem_file}: expected from make_inputs() {expected}, found {_short(value)}")
    if value is None and not argument.optional:
        raise UsageError(f"{case.problem_file}: expected from make_inputs() a value for {name}, found {_short(value)}")
    return value


def initial(case: Case, argument: Argument, inputs: Mapping[str, Any]) -> Tensor:
    """What a tensor that is input and output holds before a call.

    Raises:
        UsageError: the inputs have no such tensor.
    """
    value, sizes = inputs.get(argument.name), argument.sizes(case.params)
    dtype = f"torch.{argument.dtype}"
    if value is None or tuple(getattr(value, "shape", ())) != sizes or str(getattr(value, "dtype", "")) != dtype:
        raise UsageError(
            f"{case.problem_file}: expected from make_inputs() what {argument.name} holds before a call, "
            f"{argument.dtype} {list(sizes)}, found {_short(value)}\n"
            "  hint: the manifest names it in `inout`; each call is given a copy of it"
        )
    return value  # type: ignore[no-any-return]


def _short(value: Any) -> str:
    shape = getattr(value, "shape", None)
    return "none" if value is None else repr(value) if shape is None else f"{value.dtype} {list(shape)}"


class AsCompiled:
    """A callable whose first call is compared with what was judged: the code that is loaded, its grid and its
    arguments. Of
    recorded kernels only the code is known: a cubin of each must be found where compilers cache theirs."""

    def __init__(self, case: Case, target: Callable[..., Any]) -> None:
        self._case, self._target, self._compared = case, target, False

    def __call__(self, *arguments: Any) -> None:
        if self._compared:
            self._target(*arguments)
            return
        named = zip(arguments, self._case.arguments, strict=True)
        names = {value.data_ptr(): a.name for value, a in named if value is not None and a.kind == "tensor"}
        if not self._case.was_recorded:
            language = plugin.resolve(self._case.language)
            wrong = language.run(lambda: self._target(*arguments), names, self._case.calls)
        else:
            self._target(*arguments)
            left = {cubin.code_of(path.read_bytes()) for path in _cubins_left().rglob("*.cubin")}
            lost = sum(call[0]["code"] not in left for call in self._case.calls)
            wrong = (
                f"{lost} of {len(self._case.calls)} recorded kernels are none of the {len(left)} compiled"
                if lost
                else ""
            )
        if wrong:
            raise FlashcoreError(f"not what was compiled and judged: {wrong}")
        self._compared = True


@functools.cache
def _cubins_left() -> Path:
    """Sets where Triton and torch.compile, and other compilers if they comply, cache what they compile in this
    process."""
    folder = tempfile.mkdtemp(prefix="flashcore-cubins-")
    os.environ.update(dict.fromkeys(("TRITON_CACHE_DIR", "TORCHINDUCTOR_CACHE_DIR", "FLASHCORE_CUBINS"), folder))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    return Path(folder)


@functools.cache
def operator(suite: str, variant: str, library: str | None) -> Callable[..., None]:
    """``torch.ops.flashcore_<suite>.<variant>`` out of its library, with a fake kernel registered.

    Args:
        variant: its name; of one of several builds ``name@build``, whose operator is registered as ``name__build``.

    Raises:
        FlashcoreError: the library cannot be loaded, or does not register that operator.
    """
    import torch

    variant, _, build = variant.partition("@")
    suffix = f"__{build}" if build else os.environ.get(SUFFIX, "")
    if library is not None:
        try:
            with _suffixed(suffix):
                torch.ops.load_library(library)  # type: ignore[no-untyped-call]
        except OSError as error:
            raise FlashcoreError(
                f"{library}: expected a library that torch {torch.__version__} can load, found: {error}\n"
                "  hint: build it again with this environment"
            ) from error
    name = variant + (suffix if library is not None else "")
    namespace = f"flashcore_{suite}"
    try:
        packet = getattr(getattr(torch.ops, namespace), name)
    except AttributeError as error:
        raise FlashcoreError(
            f"{library or 'the problem file'}: expected the operator {namespace}::{name}, found none\n"
            f"  hint: {'a macro of the source must not have the name of a variant' if library else 'register it there'}"
        ) from error
    if not torch._C._dispatch_has_kernel_for_dispatch_key(f"{namespace}::{name}", "Meta"):
        # The operator writes its outputs and returns nothing, so there is nothing to infer.
        torch.library.register_fake(f"{namespace}::{name}", lambda *_: None)
    return packet.default  # type: ignore[no-any-return]


@contextlib.contextmanager
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
    module = load_file(str(Path(case.root).resolve() / file))
    function = getattr(module, name, None)
    if not callable(function):
        raise UsageError(f"{module.__file__}: expected a function {name}, found {function!r}")
    return function  # type: ignore[no-any-return]


def synchronize(device: str) -> None:
    """Waits for the device; raises the error of its last work."""
    if device != "cpu":
        import torch

        torch.cuda.synchronize()


def is_poisoned(device: str) -> bool:
    """Whether this process can no longer use the device, after a sticky error.

    A refused launch (too much shared memory) is no sticky error, but the runtime may report it again at the next
    launch: so a test kernel is tried twice.
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


def leave(code: int) -> NoReturn:
    """Ends this process at once, since the next stage waits for it. Torch and the CUDA runtime take down one by one
    what the driver frees anyway: a check's process was gone 0.2 s after its last answer (H100), 0.8 s before (H200)."""
    atexit._run_exitfuncs()
    sys.stdout.flush()
    sys.stderr.flush()
    ctypes.CDLL(None).fflush(None)  # what launchers and kernels printed
    os._exit(code)


def serve(
    arguments: Sequence[str],
    perform: Callable[[Task, Journal], Mapping[str, Any] | None],
    prepare: Callable[[], object] = lambda: None,
    modules: Sequence[str] = (),
) -> int:
    """The program of a child that runs kernels on the device that its tasks' payloads name: ``TASKFILE JOURNAL``.
    Gives its exit code. ``prepare`` runs once the device is there; both may raise a :class:`CapabilityError`.

    Args:
        modules: what tasks may need beside torch; imported as long as there are none yet, if this torch has it.
    """
    device = ""

    def ready(first: Task) -> None:
        nonlocal device
        device = first.payload["device"]
        require_device(device)
        prepare()

    def import_(module: str) -> None:
        with contextlib.suppress(ImportError):  # said by the first task
            importlib.import_module(module)

    imports = [functools.partial(import_, module) for module in ("torch", *modules)]
    return child(arguments, perform, prepare=ready, imports=imports, is_poisoned=lambda: is_poisoned(device))
