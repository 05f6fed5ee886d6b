"""Reads compilers' messages: the place of the first error, and whether the compiler rejected the source at all."""

from __future__ import annotations

import errno
import os
import re

from flashcore.model.causes import CompileFailed, CompilerStopped

_ERROR = re.compile(r"^(?P<file>[^\s(:][^(:\n]*)[(:](?P<line>\d+)\)?\s*:\s*(?:fatal )?error\b", re.MULTILINE)

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
    return CompilerStopped(message)


def compile_failed(message: str) -> CompileFailed:
    """The cause of a failed build, with the place of nvcc's or g++'s first error."""
    error = _ERROR.search(message)
    return CompileFailed(message, error["file"], int(error["line"])) if error else CompileFailed(message)
