"""nvcc's command for a unit: the variant's flags, the harness's, and the folders of headers."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable
from pathlib import Path

from flashcore.build.unit import Unit
from flashcore.errors import UsageError
from flashcore.model.suite import Suite, Variant

HARNESS_INCLUDE = Path(__file__).parent / "include"
#: What the harness adds to a variant's flags: source lines of machine code, ptxas' log, code that a library may have.
FLAGS = ("-lineinfo", "-Xptxas", "-v", "-Xcompiler", "-fPIC")
DEBUG_FLAGS = ("-G", "-DDEBUG=1", *FLAGS[1:])
#: __TIME__ would make every compilation different.
HOST_FLAGS = ("-Xcompiler", "-Werror=date-time")
# nvcc passes its arguments to a shell in double quotes, and removes quotes from the paths of -I.
_UNSAFE = r"""[\x00-\x1f\x7f$`"\\]|^-I.*'"""


def compile_flags(suite: Suite, variant: Variant, arch: str, debug: bool) -> tuple[str, ...]:
    """nvcc's flags for a variant, with paths relative to the suite, so that they compare between machines."""
    number = arch.removeprefix("sm_")
    config = [f"-D{k}={int(v) if isinstance(v, bool) else v}" for k, v in variant.config.items()]
    return (
        *(flag for flag in variant.flags if not (debug and flag.startswith("-O"))),
        *(DEBUG_FLAGS if debug else FLAGS),
        "-gencode",
        f"arch=compute_{number},code={arch}",
        f"-DFLASHCORE_NAME={variant.name}",
        *config,
        *(f"-I{i}" for i in suite.include),
    )


def source_of(suite: Suite, variant: Variant) -> str:
    """A variant's file as nvcc gets it: what links lead to, relative to the suite, so that __FILE__ is the same in a
    copy of the suite."""
    top = os.path.realpath(suite.root)
    return os.path.relpath(os.path.realpath(Path(top, variant.kind.file)), top)


def command(suite: Suite, unit: Unit, nvcc: Path, problem: Path) -> list[str]:
    """nvcc's command for a unit, in the suite's folder; ``steps.sh`` adds where it puts its output.

    Args:
        problem: the folder of the problem's generated headers.
    """
    source = re.sub("^(?=[-@])", "./", source_of(suite, unit.variant))
    # nvcc splits -D at commas, so those in a macro's value (template arguments) are escaped.
    escaped = [flag.replace(",", "\\,") if flag.startswith("-D") else flag for flag in unit.flags]
    headers = (f"-I{problem.resolve()}", f"-I{HARNESS_INCLUDE}", *unit.libraries.flags)
    return [str(nvcc), *escaped, *HOST_FLAGS, *headers, "-c" if unit.is_host else "-cubin", source]


def refuse_unsafe(texts: Iterable[str]) -> None:
    """Refuses flags and paths that nvcc's shell would not pass unchanged.

    Raises:
        UsageError: nvcc would misread a flag or path, or run a command in it.
    """
    for text in texts:
        if unsafe := re.search(_UNSAFE, text):
            raise UsageError(
                f"{text!r}: expected a path or flag that nvcc passes unchanged, found {unsafe[0][-1]!r} in it\n"
                "  hint: remove $, `, \", ', \\ and line breaks"
            )
