"""The messages of compilers: where the first error is."""

from __future__ import annotations

import re

from flashcore.model.causes import CompileFailed

_ERROR = re.compile(r"^(?P<file>[^\s(:][^(:\n]*)[(:](?P<line>\d+)\)?\s*:\s*(?:fatal )?error\b", re.MULTILINE)


def compile_failed(message: str) -> CompileFailed:
    """The cause for a failed build, with the place of the first error that nvcc or g++ names."""
    error = _ERROR.search(message)
    return CompileFailed(message, error["file"], int(error["line"])) if error else CompileFailed(message)
