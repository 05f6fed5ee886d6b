"""Lists the kernels in files, each with its name and the contents of its cubin."""

from __future__ import annotations

import re
import subprocess
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future, wait
from dataclasses import dataclass, field, replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import NamedTuple

from flashcore.errors import FlashcoreError
from flashcore.features.audit import containers, sass
from flashcore.features.audit.causes import DAMAGED, SPILLS_UNLISTED
from flashcore.machine import toolchain
from flashcore.model.cause import Cause
from flashcore.model.causes import NO_TOOL, CompileFailed
from flashcore.model.groups import grouped
from flashcore.model.text import matches_any
from flashcore.readers import cubin
from flashcore.readers.kernel_names import canonical, distinct
from flashcore.records.slugs import end_slug

#: The version and the tags in a library's name.
_TAGS = re.compile(r"(-[0-9a-f]{8})?(\.c(python-|p\d)[\w-]+|\.abi3)?\.(so[.\d]*|pyd|dll)$")


class AuditedKernel(NamedTuple):
    """A kernel of one file and arch.

    ``name`` is unique in the file. ``disassembled`` is the code of its cubin, if requested. ``spills`` are bytes of
    stores and loads, or why they are unknown: a cubin without spill notes proves that there are none only if the kernel
    has no stack."""

    variant: str
    arch: str
    name: str
    content: cubin.Kernel
    spills: tuple[int, int] | Cause
    disassembled: Future[Mapping[str, sass.DisassembledCode]] | None


class Unread(NamedTuple):
    """Code that cannot be read."""

    variant: str
    arch: str
    place: str
    cause: Cause


@dataclass(slots=True)
class Inventory:
    """The device code of some files.

    Args:
        selected: globs of kernels whose cubins are disassembled.
        decisions: of budgets, by their facts.
        files: variant → the file.
        later: (variant, ``ptx`` or ``lto``, arch) → the number of its entries without machine code.
        codes: (variant, arch) → the hashes of its cubins' code.
        seconds: the time of compiling and reading the files.
    """

    selected: Sequence[str]
    decisions: sass.Decisions
    files: dict[str, str] = field(default_factory=dict)
    kernels: list[AuditedKernel] = field(default_factory=list)
    later: Counter[tuple[str, str, str]] = field(default_factory=Counter)
    unread: list[Unread] = field(default_factory=list)
    codes: dict[tuple[str, str], list[str]] = field(default_factory=dict)
    seconds: float = 0.0


def inventory(
    paths: Iterable[Path],
    selected: Sequence[str] = (),
    archs: Sequence[str] = (),
    decisions: sass.Decisions | None = None,
) -> Inventory:
    """The kernels in files and folders.

    Args:
        selected: globs of kernels whose cubins are disassembled.
        archs: the archs that PTX is compiled for.
        decisions: as in :class:`Inventory`.

    Raises:
        UsageError: a path does not exist.
    """
    # What tells namesakes apart is known when all are read.
    result = Inventory([re.split("[@(]", glob)[0] for glob in selected], decisions or {})
    variants: dict[tuple[int, str], str] = {}
    given: dict[str, str] = {}  # a variant's path
    seen: dict[tuple[str, str, str], list[str]] = {}  # (variant, arch, kernel) → the code of each
    for number, path in enumerate(paths):
        for code in _codes(path, archs):
            variant = variants.get((number, code.file))
            if variant is None:
                variant = variants[number, code.file] = _variant(code.file, result.files)
                result.files[variant] = code.file
                given[variant] = f"{path}/{code.file}" if path.is_dir() else str(path) + code.file[len(path.name) :]
            _add(result, variant, code, seen)
    wait(kernel.disassembled for kernel in result.kernels if kernel.disassembled)
    uses = Counter(result.files.values())
    result.files = {variant: given[variant] if uses[file] > 1 else file for variant, file in result.files.items()}
    by_variant = grouped((kernel.variant, kernel.content.name) for kernel in result.kernels)
    names = {variant: distinct(mangled) for variant, mangled in by_variant.items()}

    def shown(kernel: AuditedKernel) -> str:
        mangled = kernel.content.name
        return names[kernel.variant][mangled] + kernel.name.removeprefix(mangled)

    result.kernels = [kernel._replace(name=shown(kernel)) for kernel in result.kernels]
    return result


def _variant(file: str, taken: Iterable[str]) -> str:
    """A short name that is the same for all versions of the file; of a long path, its end."""
    path = _TAGS.sub("", file.partition("!")[2] or file)
    name = end_slug(path)
    number = 1
    while (numbered := f"{name}_{number}" if number > 1 else name) in taken:
        number += 1
    return numbered


def _add(
    result: Inventory, variant: str, code: containers.DeviceCode, seen: dict[tuple[str, str, str], list[str]]
) -> None:
    if isinstance(code.content, Cause):
        result.unread.append(Unread(variant, code.arch, code.place, code.content))
        return
    if code.kind != "cubin":
        result.later[variant, code.kind, code.arch] += 1
        return
    try:
        content = cubin.parse(code.content, code.arch, code.place)
    except FlashcoreError as error:
        result.unread.append(Unread(variant, code.arch, code.place, DAMAGED(str(error).partition("\n")[0])))
        return
    result.codes.setdefault((variant, code.arch), []).append(content.code)
    names = [name for kernel in content.kernels if result.selected for name in (kernel.name, canonical(kernel.name))]
    selected = any(matches_any(name, result.selected) for name in names)
    disassembled = sass.disassembled(code.content, code.arch, content.separate, result.decisions) if selected else None
    for kernel in content.kernels:
        same = seen.setdefault((variant, code.arch, kernel.name), [])
        if kernel.code in same:
            continue  # instantiated in several objects
        same.append(kernel.code)
        name = f"{kernel.name}@{len(same)}" if len(same) > 1 else kernel.name
        result.kernels.append(AuditedKernel(variant, code.arch, name, kernel, _spills(kernel), disassembled))


def _spills(kernel: cubin.Kernel) -> tuple[int, int] | Cause:
    if kernel.stack_bytes == 0 and not kernel.spills and not kernel.is_incomplete:
        return 0, 0
    return kernel.spills or kernel.missing or SPILLS_UNLISTED(kernel.stack_bytes or 0)


_ERROR = re.compile(r"(line \d+; )?(error|fatal) *:.*")


def _codes(path: Path, archs: Sequence[str]) -> Iterator[containers.DeviceCode]:
    """Reads a file's code; compiles PTX for each of ``archs``, if any."""
    for code in containers.read(path):
        if archs and code.kind == "ptx" and isinstance(code.content, bytes):
            for arch in archs:
                yield replace(code, kind="cubin", arch=arch, content=_compiled(code.content, arch))
        else:
            yield code


def _compiled(content: bytes, arch: str) -> bytes | Cause:
    """The cubin, or the first error of ptxas."""
    compiler = toolchain.optional_tool("ptxas")
    if compiler is None:
        return NO_TOOL("ptxas")
    with TemporaryDirectory() as folder:
        source, made = Path(folder) / "code.ptx", Path(folder) / "code.cubin"
        source.write_bytes(content)
        try:
            result = toolchain.ask([compiler, f"-arch={arch}", source, "-o", made], timeout=300)
        except subprocess.TimeoutExpired:
            return CompileFailed("ptxas takes more than 300 s")
        if result.returncode == 0:
            return made.read_bytes()
    error = _ERROR.search(result.stderr)
    return CompileFailed(f"ptxas: {error[0] if error else result.returncode}")
