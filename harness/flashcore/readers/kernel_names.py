"""Normalizes kernel names: cubins have mangled names, and ncu and the C++ library demangle them differently.

The canonical name has namespaces and template arguments, but no return type, parameters or spaces:
``ns::gemm<128,float>``. The name of an ``extern "C"`` kernel is unchanged.
"""

from __future__ import annotations

import ctypes
import functools
import re

_UNNAMED = re.compile(r"(?:\(anonymous namespace\)|<unnamed>|_GLOBAL__N__\w+)::")
#: Decorations that demanglers add to a template argument's value: ``(int)96``, ``96u``.
_CAST = re.compile(r"\([A-Za-z_][\w:]*(?: [A-Za-z_][\w:]*)*\)(?=-?\d)")
_SUFFIX = re.compile(r"(?<![\w.])(-?\d+)(?:u|l|ul|ll|ull)\b")
_ARGUMENTS = re.compile(r"<[^<>]*>")
_CONST = re.compile(r"((?:unsigned |signed )?[A-Za-z_][\w:]*(?:<[^<>]*>)?) const\b")


@functools.lru_cache(maxsize=4096)
def canonical(name: str) -> str:
    """The canonical name of a kernel, from its mangled name or any tool's demangled one."""
    if name.startswith("_Z"):
        name = demangled(name)
    text = _without_return_type(_without_parameters(_UNNAMED.sub("", name).strip()))
    head, bracket, arguments = text.partition("<")
    if bracket:
        arguments = _SUFFIX.sub(r"\1", _CAST.sub("", arguments))
        arguments = re.sub(r"\btrue\b", "1", re.sub(r"\bfalse\b", "0", _CONST.sub(r"const \1", arguments)))
        arguments = re.sub(r" ?([^\w ]) ?", r"\1", arguments)
    return re.sub(r"\s+", "_", head + bracket + arguments) or name


@functools.lru_cache(maxsize=1 << 16)
def without_arguments(name: str) -> str:
    """The :func:`canonical` name without template arguments: ``ns::gemm``."""
    text = name = canonical(name)
    while (shorter := _ARGUMENTS.sub("", text)) != text:
        text = shorter
    return text or name


def identifier(name: str) -> str:
    """The function's name without namespaces: ``gemm``."""
    return without_arguments(name).rpartition("::")[2]


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
