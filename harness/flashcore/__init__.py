"""FlashCore: profiles CUDA kernel families, draws their rooflines, and gates their budgets.

:data:`__all__` is the public API, described in :mod:`flashcore.api`; plugins add names. Names are imported on first
use, since the command line imports this package on every start.
"""

import importlib.machinery
from typing import TYPE_CHECKING, Any

from flashcore.errors import Exit, FlashcoreError

__version__ = "1.0.0"
__all__ = [
    "Exit",
    "FlashcoreError",
    "JudgedRun",
    "Run",
    "judge",
    "load_suite",
    "read_run",
    "roofline",
]

if TYPE_CHECKING:
    from flashcore.api import JudgedRun, Run, judge, load_suite, read_run, roofline


def __getattr__(name: str) -> Any:
    if importlib.machinery.PathFinder.find_spec(f"flashcore.{name}", __path__) is None:  # not a submodule
        return getattr(importlib.import_module("flashcore.api"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    from flashcore.pipeline import plugins

    return sorted({*globals(), *__all__, *dict(plugins.entries("api"))})
