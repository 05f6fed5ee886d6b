"""The messages of compilers: where the first error is, and whether the compiler rejected the source at all."""

from __future__ import annotations

import errno
import os
import re

from flashcore.model.causes import CompileFailed, CompilerStopped

_ERROR = re.compile(r"^(?P<file>[^\s(:][^(:\n]*)[(:](?P<line>\d+)\)?\s*:\s*(?:fatal )?error\b", re.MULTILINE)

#: The compiler's verdict on a line of the source; what quotes the source there is no message of the machine.
_REJECTED = re.compile(r"^\S.*[(:]\d+\)?\s*: error\b", re.MULTILINE)
_MACHINE = "ENOSPC EDQUOT EFBIG EIO EROFS ESTALE ENOMEM EMFILE ENFILE EAGAIN ENOEXEC ETXTBSY"
_WORDS = (
    *(re.escape(os.strerror(getattr(errno, name))) for name in _MACHINE.split()),
    r"fatal error: when writing output to ",  # of g++ on a full disk, with any reason
    r"\bsignal \d|\bsignal terminated program|^(?:Killed|Terminated|Bus error|Segmentation fault|Aborted)\b",
    "(?i:out of memory|memory exhausted|memory allocation fail|bad_alloc)",
)
_STOPPED = re.compile(rf"^(?=\S).*?(?:{'|'.join(_WORDS)})", re.MULTILINE)


def failed(message: str) -> CompileFailed | CompilerStopped:
    """The cause for a file that a compiler did not make; without a message it cannot have rejected the source."""
    if message and (_REJECTED.search(message) or not _STOPPED.search(message)):
        return compile_failed(message)
    return CompilerStopped(message)


def compile_failed(message: str) -> CompileFailed:
    """The cause for a failed build, with the place of the first error that nvcc or g++ names."""
    error = _ERROR.search(message)
    return CompileFailed(message, error["file"], int(error["line"])) if error else CompileFailed(message)
