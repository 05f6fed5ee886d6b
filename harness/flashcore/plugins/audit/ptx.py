"""Compiles PTX that files hold."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory

from flashcore.measure.machine import toolchain
from flashcore.model.causes import Cause, CompileFailed, NoTool
from flashcore.plugins.audit import containers

_ERROR = re.compile(r"(line \d+; )?(error|fatal) *:.*")


def read(path: Path, archs: Sequence[str]) -> Iterator[containers.Code]:
    """As :func:`containers.read`, but with PTX compiled for each of the archs, if there are any."""
    for code in containers.read(path):
        if archs and code.kind == "ptx" and isinstance(code.content, bytes):
            for arch in archs:
                yield replace(code, kind="cubin", arch=arch, content=_compiled(code.content, arch))
        else:
            yield code


def _compiled(content: bytes, arch: str) -> bytes | Cause:
    """The cubin, or ptxas' first error."""
    compiler = toolchain.optional_tool("ptxas")
    if compiler is None:
        return NoTool("ptxas")
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
