"""Reads compilers' and linkers' messages: the first error, its place, and whether the source was rejected at all."""

from __future__ import annotations

import errno
import os
import re
from collections.abc import Mapping

from flashcore.model.causes import CompileFailed, CompilerStopped

_ERROR = re.compile(r"^(?P<file>[^\s(:][^(:\n]*)[(:](?P<line>\d+)\)?(?::\d+)?\s*:\s*(?:fatal )?error\b", re.MULTILINE)
#: An error of each tool without its place in temporary files; more of it is on indented lines.
_FIRST = re.compile(
    r"^(?:.*?(?=undefined reference to |multiple definition of |required symbol |cannot find -l)(?P<linker>.*)"
    r"|(?P<other>\S.*[(:]\d+\)?\s*: (?:fatal |catastrophic )?error\b.*|(?:ptxas|nvcc|nvlink|cc1plus|\S*g\+\+|\S*ld)\b.*"
    r"\b(?:fatal|error)\b.*))(?P<more>(?:\n(?:[ \t].*)?)*)",
    re.MULTILINE,
)
_MOST_CHARACTERS = 20_000  # of a message
#: What to do about an error in a suite's source, by a part of its message.
_HINTS = {
    "flashcore_launch_plan": "end the source with FLASHCORE_VARIANT(plan, launch) or FLASHCORE_LAUNCHER(launch)",
    "undefined reference": "include the file that defines it in the source, or name its library in `libraries`",
    "flag '--": "add the flag to `flags` of the suite, or of the variant",
    "separate compilation": "a variant is one file without -rdc=true; `flashcore audit` reads what a build links",
    "cuda_cmake_macros.h": "torch's CPU build lacks this header: install a CUDA build, which needs no GPU to compile",
    "No such file": "name its folder in `include`, its library in `libraries`, or its Python package in `packages`",
}

#: An error on a source line. Words of :data:`_STOPPED` in such a message quote the source.
_REJECTED = re.compile(r"^\S.*[(:]\d+\)?\s*: error\b", re.MULTILINE)
_MACHINE = "EACCES EPERM ENOSPC EDQUOT EFBIG EIO EROFS ESTALE ENOMEM EMFILE ENFILE EAGAIN ENOEXEC ETXTBSY"
_WORDS = (
    *(re.escape(os.strerror(getattr(errno, name))) for name in _MACHINE.split()),
    r"fatal error: when writing output to ",  # g++ on a full disk, whatever the reason it names
    r"\bsignal \d|\bsignal terminated program|^(?:Killed|Terminated|Bus error|Segmentation fault|Aborted)\b",
    "(?i:out of memory|memory exhausted|memory allocation fail|bad_alloc)",
)
_STOPPED = re.compile(rf"^(?=\S).*?(?:{'|'.join(_WORDS)})", re.MULTILINE)


def failed(message: str) -> CompileFailed | CompilerStopped:
    """The cause of a failed compilation. Without a message, the compiler cannot have rejected the source."""
    if message and (_REJECTED.search(message) or not _STOPPED.search(message)):
        return compile_failed(message)
    return CompilerStopped(message[:_MOST_CHARACTERS])


def compile_failed(message: str, hints: Mapping[str, str] = _HINTS) -> CompileFailed:
    """The cause of a failed build: the first error, with its place if the tool names it.

    Args:
        hints: a part of a message → what to do about it.
    """
    error, place = _FIRST.search(message), _ERROR.search(message)
    if error:
        message = ((error["linker"] or error["other"]) + error["more"]).rstrip()
        message += next((f"\n  hint: {hint}" for part, hint in hints.items() if part in message), "")
    message = message[:_MOST_CHARACTERS]
    return CompileFailed(message, place["file"], int(place["line"])) if place else CompileFailed(message)
