"""Normalizes kernel names: cubins have mangled names, and ncu and the C++ library demangle them differently.

The canonical name has namespaces and template arguments, but no return type, parameters or spaces:
``ns::gemm<128,float>``. The name of an ``extern "C"`` kernel is unchanged.
"""

from __future__ import annotations

import ctypes
import functools
import re
from collections import Counter
from collections.abc import Iterable

from flashcore.model.groups import grouped

_UNNAMED = re.compile(r"(?:\(anonymous namespace\)|<unnamed>|_GLOBAL__N__\w+)::")
#: nvcc's prefix of a static kernel in relocatable code, with the length of what follows: a hash of the path, the source
#: file with its length, and a symbol. Clang has a suffix.
_STATIC, _CLANG_STATIC = re.compile(r"__nv_static_(\d+)_"), re.compile(r"(__|\.)(static|intern)\1[0-9a-f]{8,}$")
#: The last alternative is of CUDA up to 11.2.
_FILE = re.compile(
    r"(?:_GLOBAL__N__|__nv_static_\d+__)"
    r"(?:[0-9a-f]{8}_(\d+)_|\d+_tmpxft_[0-9a-f]+_[0-9a-f]+_\d+_(\w+?)(?:_compute_\d+)?_cpp1_ii_)"
)
#: Decorations that demanglers add to a template argument's value: ``(int)96``, ``96u``.
_CAST = re.compile(r"\([A-Za-z_][\w:]*(?: [A-Za-z_][\w:]*)*\)(?=-?\d)")
_SUFFIX = re.compile(r"(?<![\w.])(-?\d+)(?:u|l|ul|ll|ull)\b")
_ARGUMENTS = re.compile(r"<[^<>]*>")
_CONST = re.compile(r"((?:unsigned |signed )?[A-Za-z_][\w:]*(?:<[^<>]*>)?) const\b")


@functools.lru_cache(maxsize=4096)
def canonical(name: str) -> str:
    """The canonical name of a kernel, from its mangled name or any tool's demangled one."""
    text = _without_return_type(_without_parameters(_declared(name)))
    head, bracket, arguments = text.partition("<")
    if bracket:
        arguments = _SUFFIX.sub(r"\1", _CAST.sub("", arguments))
        arguments = re.sub(r"\btrue\b", "1", re.sub(r"\bfalse\b", "0", _CONST.sub(r"const \1", arguments)))
    return _without_blanks(head, bracket + arguments) or name


def distinct(names: Iterable[str]) -> dict[str, str]:
    """Mangled name → the canonical one. Namesakes also get what tells them apart: their parameters, the source file of
    their anonymous namespace or ``static``, or a number."""
    shown = {}
    for canonical_name, same in grouped((canonical(name), name) for name in dict.fromkeys(names)).items():
        parameters = [_parameters(name) for name in same]
        files = [_file(name) for name in same]
        both = [*map("".join, zip(parameters, files, strict=True))]
        ends = next((e for e in ([""] * len(same), parameters, files) if len({*e}) == len(same)), both)
        uses = Counter[str]()
        for name, end in zip(same, ends, strict=True):
            uses[end] += 1
            shown[name] = canonical_name + end + (f"@{uses[end]}" if uses[end] > 1 else "")
    return shown


def _declared(name: str) -> str:
    """The declaration, without what stands for the source file."""
    if match := _STATIC.match(name):
        name = name[match.end() + int(match[1]) + 1 :]
    name = _CLANG_STATIC.sub("", name)
    return _UNNAMED.sub("", demangled(name) if name.startswith("_Z") else name).strip()


def _parameters(name: str) -> str:
    declared = _declared(name)
    return _without_blanks("", declared[len(_without_parameters(declared)) :])


def _file(name: str) -> str:
    match = _FILE.search(name)
    if match and match[1]:
        return "@" + re.sub(r"_(?=[a-z]+$)", ".", name[match.end() : match.end() + int(match[1])])
    return f"@{match[2]}" if match else ""


def _without_blanks(head: str, types: str) -> str:
    return re.sub(r"\s+", "_", head + re.sub(r" ?([^\w ]) ?", r"\1", types))


@functools.lru_cache(maxsize=1 << 16)
def without_arguments(name: str) -> str:
    """The :func:`canonical` name without template arguments: ``ns::gemm``."""
    text = name = canonical(name)
    while (shorter := _ARGUMENTS.sub("", text)) != text:
        text = shorter
    return text or name


def identifier(name: str) -> str:
    """The function's name without namespaces: ``gemm``."""
    return without_arguments(name).rpartition("::")[2].partition("@")[0]


def _without_parameters(name: str) -> str:
    depth = 0
    for at, char in enumerate(name):
        depth += (char == "<") - (char == ">")
        if char == "(" and depth == 0 and at:
            return name[:at].rstrip()
    return name


def _without_return_type(name: str) -> str:
    depth = 0
    for at in range(len(name) - 1, -1, -1):
        depth += (name[at] in ">)") - (name[at] in "<(")
        if name[at] == " " and depth == 0:
            return name[at + 1 :]
    return name


@functools.lru_cache(maxsize=4096)
def demangled(mangled: str) -> str:
    """The name demangled by the C++ runtime library; unchanged if the library is missing."""
    library = _library()
    if library is None:
        return mangled
    status = ctypes.c_int()
    text = library.__cxa_demangle(mangled.encode(), None, None, ctypes.byref(status))
    if not text:
        return mangled
    try:
        return (ctypes.string_at(text) or b"").decode(errors="replace")
    finally:
        ctypes.CDLL(None).free(ctypes.c_void_p(text))


@functools.cache
def _library() -> ctypes.CDLL | None:
    try:
        library = ctypes.CDLL("libstdc++.so.6")
    except OSError:
        return None
    library.__cxa_demangle.restype = ctypes.c_void_p
    return library
