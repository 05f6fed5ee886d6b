"""Calls a kernel in a child process: the case, its operator or Python callable, and the child's main loop.

Only children import torch, so it is imported inside the functions.
"""

from __future__ import annotations

import atexit
import ctypes
import functools
import gc
import importlib
import os
import shutil
import sys
import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any, NoReturn

from flashcore.errors import FlashcoreError, UsageError
from flashcore.machine.capabilities import lacking
from flashcore.model import plugin
from flashcore.model.case import Case
from flashcore.model.record import CaseSubject, Subject
from flashcore.model.suite import Argument, Params, Shape, Suite, TimingMode
from flashcore.readers import cubin
from flashcore.runner.child import Perform, child
from flashcore.runner.guarded import POISON_BYTE, Outputs, write
from flashcore.runner.journal import Task
from flashcore.runner.problem_file import load_file, load_problem

if TYPE_CHECKING:
    from torch import Tensor

#: The environment variable with the suffix of the operator's name, read when a library registers its operator.
SUFFIX = "FLASHCORE_OP_SUFFIX"


@dataclass(frozen=True, slots=True)
class Operator:
    """An operator of torch, which writes its outputs.

    Args:
        library: the absolute path of the ``.so`` that registers it; ``None``: the problem's file does.
        host: the hash of the library's host code.
    """

    library: str | None = None
    host: str = ""


@dataclass(frozen=True, slots=True)
class Reference:
    """A Python function, ``references.py:cudnn``, which returns its outputs."""

    function: str


@dataclass(frozen=True, slots=True)
class Compiled:
    """A Python function that launches what a language compiled, and writes its outputs.

    Args:
        function: ``rows.py:softmax``.
        language: the plugin module that compiled it.
        calls: the launches that it was compiled for.
        config: its keyword arguments.
    """

    function: str
    language: str
    calls: tuple[Sequence[Mapping[str, Any]], ...]
    config: Params = field(default_factory=dict)

    @property
    def was_recorded(self) -> bool:
        """Whether the code of the kernels was recorded, without their launches."""
        return "arguments" not in self.calls[0][0]


@dataclass(frozen=True, slots=True)
class Launched:
    """Kernels that a plugin launches from their cubins, by their plan instead of by host code.

    Args:
        launcher: the reference of a function that makes the call of a :class:`KernelCall`.
        cubins: kernel → the absolute path of its cubin.
        plan: the launch plan, as JSON.
        calls: the launches that were compiled, with their arguments.
    """

    launcher: str
    cubins: Mapping[str, str]
    plan: Mapping[str, Any]
    calls: tuple[Sequence[Mapping[str, Any]], ...]


#: What is called.
Target = Operator | Reference | Compiled | Launched
_TARGETS: dict[str, Callable[..., Target]] = {kind.__name__: kind for kind in (Operator, Reference, Compiled, Launched)}


@dataclass(frozen=True, slots=True)
class KernelCall:
    """A call of a variant on a shape, with everything a child process needs for it.

    Args:
        variant: the name; ``name@build`` if one process runs several builds of a variant: ``wide@before``.
        root: the suite's folder, absolute.
        flop: FLOP of a call by the problem's formula, if it has one.
        launches: kernels in the launch plan; 0 for a reference.
    """

    variant: str
    shape: str
    suite: str
    root: str
    problem_file: str
    params: Params
    arguments: tuple[Argument, ...]
    tolerance: str
    target: Target = Operator()
    seeds: tuple[int, ...] = ()
    flop: float | None = None
    rank_by: TimingMode = "isolated"
    launches: int = 0
    repeats: int = 0

    @property
    def case(self) -> Case:
        """The variant and the shape."""
        return Case(self.variant, self.shape)

    @property
    def name(self) -> str:
        """The case as text, the name of tasks and of the NVTX range."""
        return str(self.case)

    @property
    def is_reference(self) -> bool:
        """Whether it calls a Python reference, which returns its outputs."""
        return isinstance(self.target, Reference)

    @property
    def library(self) -> str | None:
        """The library that registers the operator, if there is one."""
        return self.target.library if isinstance(self.target, Operator) else None

    @property
    def subject(self) -> Subject:
        """The subject of the case's facts."""
        return CaseSubject(self.case)

    @classmethod
    def of(cls, suite: Suite, problem: str, shape: Shape, **more: Any) -> KernelCall:
        """A case of a suite's problem on a shape, with these other fields."""
        declared = suite.problems[problem]
        return cls(
            shape=shape.name,
            suite=suite.name,
            root=str(Path(suite.root).resolve()),
            problem_file=declared.file,
            params=dict(shape.params),
            arguments=declared.arguments,
            **more,
        )

    def task(self, device: str, **more: Any) -> Task:
        """The task of a child that calls the case (:meth:`Caller.of`), with more for its payload."""
        return Task(self.name, {"case": self.to_json(), "device": device, **more})

    def to_json(self) -> dict[str, Any]:
        """The case as plain JSON, for a task's payload."""
        return {**asdict(self), "target": {"kind": type(self.target).__name__, **asdict(self.target)}}

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> KernelCall:
        """The inverse of :meth:`to_json`."""
        arguments = tuple(Argument(**{**a, "dims": tuple(a["dims"])}) for a in data["arguments"])
        fields = {key: tuple(value) if key == "calls" else value for key, value in data["target"].items()}
        target = _TARGETS[str(fields.pop("kind"))](**fields)
        return cls(**{**data, "arguments": arguments, "seeds": tuple(data["seeds"]), "target": target})


# --- calls --------------------------------------------------------------------------------------


class Caller:
    """Runs one case: the operator of its library, or its Python callable.

    Args:
        problem: the problem's module; loaded unless given.
        device: the device of the outputs.

    Raises:
        FlashcoreError: the library cannot be loaded, or does not register the operator.
        UsageError: there is no such callable.
    """

    def __init__(self, case: KernelCall, problem: ModuleType | None = None, device: str = "cuda") -> None:
        self.case = case
        self.device = device
        self.problem = problem or load_problem(case.root, case.problem_file)
        self.target = _target(case)

    @classmethod
    def of(cls, task: Task) -> Caller:
        """The caller of a task's case, on its device."""
        return cls(KernelCall.from_json(task.payload["case"]), device=task.payload["device"])

    def outputs(self, fill: int = POISON_BYTE, *, inout: bool = True) -> Outputs:
        """Freshly poisoned output tensors. A reference allocates its outputs, except in-out tensors.

        Args:
            inout: whether to include in-out tensors.
        """
        wanted = {
            a.name: (a.sizes(self.case.params), a.dtype)
            for a in self.case.arguments
            if (inout if a.inout else a.mutable and not self.case.is_reference)
        }
        return Outputs(wanted, self.device, fill)

    def load(self, inputs: Mapping[str, Any], outputs: Mapping[str, Tensor]) -> None:
        """Writes the initial content of in-out tensors."""
        for a in self.case.arguments:
            if a.inout:
                write(outputs[a.name], initial(self.case, a, inputs))

    def arguments(self, inputs: Mapping[str, Any], outputs: Mapping[str, Any]) -> list[Any]:
        """The operator's arguments in the order of the schema.

        Raises:
            UsageError: the inputs do not match the schema.
        """
        return [outputs[a.name] if a.mutable else _value_of(self.case, a, inputs) for a in self.case.arguments]

    def bind(self, inputs: Mapping[str, Any], outputs: Mapping[str, Any]) -> Callable[[], Any]:
        """The call with its arguments bound. A reference returns its answer. In-out tensors must be loaded before each
        call."""
        if self.case.is_reference:
            written = {a.name: outputs[a.name] for a in self.case.arguments if a.inout}
            return functools.partial(self.target, **{**inputs, **written})
        return functools.partial(self.target, *self.arguments(inputs, outputs))

    def call(self, inputs: Mapping[str, Any], outputs: Outputs) -> None:
        """Calls once and puts the answer into ``outputs``, without synchronizing."""
        if self.case.is_reference:  # drop the last call's return values
            outputs.update({name: guard.tensor for name, guard in outputs.guards.items()})
        self.load(inputs, outputs)
        answer = self.bind(inputs, outputs)()
        if self.case.is_reference:
            outputs.update(self.named(answer))

    def named(self, answer: Any) -> dict[str, Tensor]:
        """A reference's return value, by output name."""
        names = [a.name for a in self.case.arguments if a.mutable]
        values = answer if isinstance(answer, (tuple, list)) else (answer,)
        if len(values) < len(names):
            raise FlashcoreError(
                f"{self.case.variant}: expected {len(names)} tensors ({', '.join(names)}), found {len(values)}"
            )
        return dict(zip(names, values, strict=False))


def _value_of(case: KernelCall, argument: Argument, inputs: Mapping[str, Any]) -> Any:
    """The value of an argument that is only an input.

    Raises:
        UsageError: the value is missing, or present although the shape declares it absent.
    """
    name, value = argument.name, inputs.get(argument.name, argument.default)
    declared = case.params.get(name)
    if argument.optional and isinstance(declared, bool) and declared is (value is None):
        expected = (
            f"a tensor {name}, as shape {case.shape} declares" if declared else f"no {name}, as {name} = false declares"
        )
        raise UsageError(f"{case.problem_file}: expected make_inputs() to return {expected}, found {_short(value)}")
    if value is None and not argument.optional:
        raise UsageError(f"{case.problem_file}: expected make_inputs() to return {name}, found none")
    return value


def initial(case: KernelCall, argument: Argument, inputs: Mapping[str, Any]) -> Tensor:
    """The initial content of an in-out tensor.

    Raises:
        UsageError: the inputs have no such tensor.
    """
    value, sizes = inputs.get(argument.name), argument.sizes(case.params)
    dtype = f"torch.{argument.dtype}"
    if value is None or tuple(getattr(value, "shape", ())) != sizes or str(getattr(value, "dtype", "")) != dtype:
        raise UsageError(
            f"{case.problem_file}: expected make_inputs() to return the initial content of {argument.name}, "
            f"{argument.dtype} {list(sizes)}, found {_short(value)}\n"
            "  hint: the manifest lists it in `inout`; each call gets a copy"
        )
    return value  # type: ignore[no-any-return]


def _short(value: Any) -> str:
    shape = getattr(value, "shape", None)
    return "none" if value is None else repr(value) if shape is None else f"{value.dtype} {list(shape)}"


class AsCompiled:
    """A callable whose first call must match what was compiled: the loaded code, the grid and the arguments.

    For recorded kernels only the code is compared: the compilers' caches must contain each kernel's cubin.
    """

    def __init__(self, case: KernelCall, compiled: Compiled, function: Callable[..., Any]) -> None:
        self._arguments, self._compiled, self._compared = case.arguments, compiled, False
        self._target = functools.partial(function, **compiled.config)

    def __call__(self, *arguments: Any) -> None:
        if self._compared:
            self._target(*arguments)
            return
        named = zip(arguments, self._arguments, strict=True)
        names = {value.data_ptr(): a.name for value, a in named if value is not None and a.kind == "tensor"}
        calls = self._compiled.calls
        if not self._compiled.was_recorded:
            language = plugin.resolve(self._compiled.language)
            wrong = language.run(lambda: self._target(*arguments), names, calls)
        else:
            self._target(*arguments)
            left = {cubin.code_of(path.read_bytes()) for path in _cubins_left().rglob("*.cubin")}
            lost = sum(call[0]["code"] not in left for call in calls)
            wrong = f"{lost} of {len(calls)} recorded kernels are not among the {len(left)} compiled" if lost else ""
        if wrong:
            raise FlashcoreError(f"differs from the compiled variant: {wrong}")
        self._compared = True


@functools.cache
def _cubins_left() -> Path:
    """The folder in which Triton and torch.compile cache cubins in this process, set through the environment; other
    compilers may use ``FLASHCORE_CUBINS``."""
    folder = tempfile.mkdtemp(prefix="flashcore-cubins-")
    os.environ.update(dict.fromkeys(("TRITON_CACHE_DIR", "TORCHINDUCTOR_CACHE_DIR", "FLASHCORE_CUBINS"), folder))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    return Path(folder)


@functools.cache
def operator(suite: str, variant: str, library: str | None) -> Callable[..., None]:
    """``torch.ops.flashcore_<suite>.<variant>`` from its library, with a fake kernel registered.

    Args:
        variant: the name, or ``name@build`` for one of several builds, whose operator is named ``name__build``.

    Raises:
        FlashcoreError: the library cannot be loaded, or does not register that operator.
    """
    import torch

    variant, _, build = variant.partition("@")
    before = os.environ.get(SUFFIX, "")
    suffix = f"__{build}" if build else before
    if library is not None:
        os.environ[SUFFIX] = suffix
        try:
            torch.ops.load_library(library)  # type: ignore[no-untyped-call]
        except OSError as error:
            raise FlashcoreError(
                f"{library}: torch {torch.__version__} cannot load it: {error}\n"
                "  hint: build it again in this environment"
            ) from error
        finally:
            os.environ[SUFFIX] = before
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


def _target(case: KernelCall) -> Callable[..., Any]:
    """What a case calls, loaded."""
    match case.target:
        case Operator(library):
            return operator(case.suite, case.variant, library)
        case Reference(function):
            return _function(case.root, function)
        case Launched(launcher):
            made: Callable[..., Any] = plugin.resolve(launcher)(case)
            return made
        case Compiled() as compiled:
            if compiled.was_recorded:
                _cubins_left()
            else:  # so that Triton's autotuning gives the same result in every stage
                os.environ.setdefault("TRITON_CACHE_AUTOTUNING", "1")
            return AsCompiled(case, compiled, _function(case.root, compiled.function))


def _function(root: str, reference: str) -> Callable[..., Any]:
    """The function ``file.py:name`` of a suite."""
    file, _, name = reference.partition(":")
    module = load_file(str(Path(root).resolve() / file))
    function = getattr(module, name, None)
    if not callable(function):
        raise UsageError(f"{module.__file__}: expected a function {name}, found {function!r}")
    return function  # type: ignore[no-any-return]


def synchronize(device: str) -> None:
    """Waits for the device; raises any pending CUDA error."""
    if device != "cpu":
        import torch

        torch.cuda.synchronize()


def is_poisoned(device: str) -> bool:
    """Whether a sticky error makes the device unusable for this process.

    A refused launch (too much shared memory) is not sticky, but the runtime may report it at the next launch, so a test
    kernel runs up to twice. It draws numbers, which torch refuses for good after a capture that an error ended.
    """
    import torch

    for _ in range(2):
        try:
            torch.rand(1, device=device).add_(1)
            synchronize(device)
        except Exception:
            continue
        return False
    return True


def require_device(device: str) -> None:
    """Imports torch, and raises :class:`CapabilityError` if this process cannot use the device."""
    try:
        import torch  # so that the import does not count as the first task's time
    except ModuleNotFoundError as error:
        raise lacking("torch", str(error)) from error

    if device != "cpu" and not torch.cuda.is_available():
        build = f"torch {torch.__version__}, CUDA {torch.version.cuda or 'not in this build'}"
        raise lacking("gpu", build)


def leave(code: int) -> NoReturn:
    """Ends this process without the teardown of torch and the CUDA runtime, since the next stage waits for it and the
    driver frees everything anyway: 0.2 s (H100) instead of 0.8 s (H200) after a check's last answer."""
    atexit._run_exitfuncs()
    sys.stdout.flush()
    sys.stderr.flush()
    ctypes.CDLL(None).fflush(None)  # output of launchers and kernels
    os._exit(code)


def serve(
    perform: Perform,
    prepare: Callable[[], object] = lambda: None,
    modules: Sequence[str] = (),
    end: Callable[[int], NoReturn] = leave,
) -> NoReturn:
    """Runs a kernel-calling child with this process's arguments, ``TASKFILE JOURNAL``; others are the child's.

    Args:
        perform: performs a task on the device that its payload names; may raise :class:`CapabilityError`.
        prepare: runs once the device is available; may raise :class:`CapabilityError`.
        modules: optional modules that tasks need besides torch, imported while the child waits for tasks.
        end: ends the process with an exit code.
    """
    device = ""

    def ready(first: Task) -> None:
        nonlocal device
        device = first.payload["device"]
        require_device(device)
        gc.freeze()  # a graph capture may collect garbage first: exclude torch's thousands of objects
        prepare()

    imports = [functools.partial(importlib.import_module, module) for module in ("torch", *modules)]
    end(child(sys.argv[1:3], perform, prepare=ready, imports=imports, is_poisoned=lambda: is_poisoned(device)))
