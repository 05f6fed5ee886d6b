"""Compiles a CUDA file, so that its kernels can be audited like those of any binary."""

from __future__ import annotations

import re
import shlex
from collections.abc import Sequence
from pathlib import Path

from flashcore.errors import UsageError
from flashcore.machine import toolchain
from flashcore.machine.gpu import Gpu
from flashcore.model.cause import cause_text
from flashcore.readers.compiler_log import compile_failed

SUFFIX = ".cu"
_HINTS = {
    "flag '--": "--flags='-O3 -std=c++17 FLAG'",
    "separate compilation": "audit the library or program that your build links",
    "No such file": "--flags='-O3 -std=c++17 -I FOLDER'",
}


def command(source: Path, archs: Sequence[str], flags: str) -> list[str]:
    """nvcc's command for the device code of a file, without the name of the output.

    Args:
        archs: empty: this machine's GPU's.

    Raises:
        UsageError: no arch is given, and there is no GPU; or one is not an arch.
        CapabilityError: there is no nvcc.
    """
    gpu = None if archs else Gpu.find()
    if not archs and gpu is None:
        raise UsageError(f"{source}: expected the archs to compile it for, found no GPU\n  hint: --arch sm_90a")
    numbers = [_number(arch) for arch in archs] or ["{}{}".format(*gpu.capability)]  # type: ignore[union-attr]
    codes = [word for n in numbers for word in ("-gencode", f"arch=compute_{n},code=sm_{n}")]
    try:
        words = shlex.split(flags)
    except ValueError as error:
        raise UsageError(f"--flags {flags}: expected words as a shell takes them: {error}") from None
    return [str(toolchain.find_nvcc().path), *words, "-lineinfo", *codes, "-fatbin", str(source)]


def _number(arch: str) -> str:
    number = re.fullmatch(r"(?:sm_|compute_)?(\d{1,2})\.?(\d[af]?)", arch)
    if number is None:
        raise UsageError(f"--arch {arch}: expected an arch such as sm_90a, 90a or 9.0")
    return "".join(number.groups())


def compiled(words: Sequence[str], folder: Path) -> Path:
    """The device code that a :func:`command` makes, as a file of the source's name in ``folder``.

    Raises:
        UsageError: it does not compile.
    """
    made = folder / Path(words[-1]).name
    done = toolchain.ask([*words, "-o", made])
    if done.returncode:
        cause = compile_failed((done.stderr + done.stdout).strip(), _HINTS)
        raise UsageError(f"{shlex.join(words)}: {cause_text(cause)}")
    return made
