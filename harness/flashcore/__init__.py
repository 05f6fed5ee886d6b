"""FlashCore: profile CUDA kernel families, draw their rooflines, gate their promises.

What :data:`__all__` names is the public API, described in :mod:`flashcore.api`. A name is looked up when it is asked
for, since the command line imports this package on every start.
"""

from typing import TYPE_CHECKING, Any

from flashcore.errors import Exit, FlashcoreError

__version__ = "0.1.0"
__all__ = [
    "ComparedRuns", "Exit", "FlashcoreError", "JudgedRun", "Run",
    "capture", "captured", "compare", "judge", "load_suite", "read_run", "roofline", "sweep",
]  # fmt: skip

if TYPE_CHECKING:
    from flashcore.api import (
        ComparedRuns,
        JudgedRun,
        Run,
        capture,
        captured,
        compare,
        judge,
        load_suite,
        read_run,
        roofline,
        sweep,
    )  # fmt: skip


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from flashcore import api

    return getattr(api, name)


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
