"""A candidate: a folder of files, sealed by their hash, then read as data.

``candidate.json`` describes it: its launches with formulas for the shape's numbers (``"=cdiv(R, 128)"``), or a
variant's table of ``suite.toml``, from whose sources the planner makes launches in the sandbox.
"""

from __future__ import annotations

import contextlib
import json
import os
import stat
import struct
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Annotated, Any, Literal, NamedTuple, TypeVar

from pydantic import Field, ValidationError

from flashcore.errors import UsageError
from flashcore.runner.kernel_call import KernelCall
from flashcore.suites import expressions, parts
from flashcore.suites.schema import Form, Name, Text
from flashcore_judge.launcher.plan import Launch, Plan, Tensor, Word, tensors_of
from flashcore_judge.verdict import untrusted

MANIFEST = "candidate.json"
_MOST_FILES, _MOST_BYTES, _MOST_LAUNCHES = 256, 64 << 20, 1000
_MOST_MANIFEST, _MOST_WORKSPACE = 8 << 20, 8 << 30  # bytes; a workspace is copied to the host
_MOST_PLAN = 1 << 20  # letters of a plan, which is read for each shape
_MOST_NUMBER = 1 << 63
_Form = TypeVar("_Form", bound=Form)
_FUNCTIONS: Mapping[str, Callable[..., Any]] = {
    "min": min,
    "max": max,
    "cdiv": lambda a, b: -(-a // b),
    "pow2": lambda a: 1 << max(int(a) - 1, 0).bit_length(),
}
#: A value of an argument → its bytes.
_FORMATS = {"int32": "<i", "uint32": "<I", "int64": "<q", "uint64": "<Q", "float32": "<f", "float64": "<d"}


class Launches(Form):
    """A candidate's launches on a shape, with formulas, the bytes of its workspaces, and the operator's numbers that
    they are for: all, if it names none."""

    launches: list[Any]
    workspaces: dict[Word, int | str] = Field({})
    numbers: dict[Word, int | float] = Field({})


ByShape = dict[str, Annotated[list[Launches], Field(max_length=64)]]


class _Launch(Launch):
    cubin: Annotated[str, Field(pattern=r"^[A-Za-z0-9_$][A-Za-z0-9_$.-]*\.cubin$")]  # no input's file
    programmatic: Literal[False] = False  # it would overlap with what precedes or follows the call


class _Plan(Plan):
    launches: Annotated[list[_Launch], Field(min_length=1)]  # type: ignore[assignment]


class CandidateForm(Launches):
    """``candidate.json``: launches of every shape, or by shape, or the keys of a variant in ``suite.toml``."""

    name: Text
    problem: Name
    tolerance: Name
    roof: Name = "fp32"
    #: Calls on equal inputs give equal bytes.
    deterministic: bool = True
    #: The shapes that it supports; none: all.
    shapes: list[Name] = Field([], max_length=1000)
    launches: list[Any] | ByShape = Field([])  # type: ignore[assignment]
    variant: dict[str, Any] = Field({})


class Sealed(NamedTuple):
    """A copy of a candidate's files, by path, and its hash."""

    files: Mapping[str, bytes]
    digest: str
    form: CandidateForm


def sealed(source: Path) -> Sealed:
    """Reads a candidate's files, once.

    Raises:
        UsageError: it has links, devices, or too much; its manifest is wrong.
    """
    files = dict[str, bytes]()
    try:
        for place, folders, names, at in os.fwalk(source):
            for name in (*folders, *names):
                with contextlib.suppress(IsADirectoryError):
                    files[os.path.relpath(os.path.join(place, name), source)] = _content(name, at)
                if len(files) > _MOST_FILES or sum(map(len, files.values())) > _MOST_BYTES:
                    raise OSError
    except OSError:
        limits = f"at most {_MOST_FILES} plain files of {_MOST_BYTES >> 20} MiB in all"
        raise UsageError(f"{source.name}: expected {limits}, found {name}") from None
    manifest = files.get(MANIFEST, b"")
    if len(manifest) > _MOST_MANIFEST:
        raise UsageError(f"{MANIFEST}: it has more than {_MOST_MANIFEST >> 20} MiB")
    form = validated(CandidateForm, manifest, MANIFEST)
    if bool(form.launches) == bool(form.variant):
        raise UsageError(f"{MANIFEST}: expected either launches or a variant")
    return Sealed(files, parts.digest({os.fsencode(name).hex(): files[name] for name in sorted(files)}), form)


def _content(name: str, folder: int) -> bytes:
    """The content of a plain file, or what is too much of it. What it is is asked of the open file: another may have
    taken its place since.

    Raises:
        IsADirectoryError: it is a folder.
        OSError: it is a link, a device or a pipe.
    """
    flags = os.O_NOFOLLOW | os.O_NONBLOCK
    with open(name, "rb", opener=lambda path, usual: os.open(path, usual | flags, dir_fd=folder)) as file:
        if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
            raise OSError
        return file.read(_MOST_BYTES + 1)


def validated(form: type[_Form], data: bytes | dict[str, Any], what: str) -> _Form:
    """Data, or JSON, as its form.

    Raises:
        UsageError: ``what`` is wrong, and where.
    """
    try:
        return form.model_validate_json(data) if isinstance(data, bytes) else form.model_validate(data)
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        place = untrusted(".".join(map(str, first["loc"])))
        raise UsageError(f"{what}: {place}: {first['msg']}, found {untrusted(first['input'])}") from None


def plan(case: KernelCall, given: Launches, scalars: Mapping[str, Any]) -> Plan:
    """The plan on a case. Tensors are the suite's; the candidate adds only workspaces and launches.

    Args:
        scalars: the operator's numbers.

    Raises:
        UsageError: a formula or a launch is wrong.
    """
    defaults = {a.name: a.default for a in case.arguments if a.kind != "tensor"}
    names = {**case.params, **defaults, **scalars}.items()
    numbers = {name: +value for name, value in names if isinstance(value, int | float)}  # no booleans
    tensors = tensors_of(case)
    if len(given.launches) > _MOST_LAUNCHES or len(json.dumps(given.launches)) > _MOST_PLAN:
        raise UsageError(f"launches: expected at most {_MOST_LAUNCHES} on a shape, of {_MOST_PLAN >> 20} MiB")
    if others := given.workspaces.keys() & tensors.keys():
        raise UsageError(f"workspaces: {others.pop()} is a tensor of the problem")
    workspaces = {
        name: validated(Tensor, {"dtype": "uint8", "sizes": [filled(size, numbers)], "role": "workspace"}, "workspaces")
        for name, size in given.workspaces.items()
    }
    if sum(abs(one.sizes[0]) for one in workspaces.values()) > _MOST_WORKSPACE:
        raise UsageError(f"workspaces: expected at most {_MOST_WORKSPACE >> 20} MiB in all")
    launches = filled(given.launches, numbers)
    return validated(_Plan, {"tensors": {**tensors, **workspaces}, "launches": launches}, "plan")


def filled(part: Any, names: Mapping[str, int | float]) -> Any:
    """JSON with the values of its formulas; typed numbers become the bytes of an argument.

    Args:
        names: the shape's numbers.

    Raises:
        UsageError: a formula is wrong, or a number does not fit its type.
    """
    if isinstance(part, str):
        return _value(part[1:], names) if part.startswith("=") else part
    if isinstance(part, list):
        return [filled(one, names) for one in part]
    if not isinstance(part, dict):
        return part
    made = {key: filled(value, names) for key, value in part.items()}
    for kind in sorted(_FORMATS.keys() & made.keys()):
        number = made.pop(kind)
        try:
            made["hex"] = struct.pack(_FORMATS[kind], number).hex()
        except (struct.error, OverflowError):
            raise UsageError(f"expected a number of type {kind}, found {untrusted(number)}") from None
    return made


def _value(text: str, names: Mapping[str, int | float]) -> int | float:
    try:
        number = expressions.value(text, names, _FUNCTIONS)
        if isinstance(number, bool) or not isinstance(number, int | float) or not abs(number) < _MOST_NUMBER:
            raise ValueError("not a number below 2**63")
        return number
    except ValueError as error:
        raise UsageError(f"expected a formula of the shape's numbers, found {untrusted(text)}: {error}") from None
