"""Command line and environment of child processes that run this package, without imports from the user's folder.

``python -m`` puts the current folder first on ``sys.path``, and so does an empty or relative entry of PYTHONPATH: a
user's ``json.py`` or ``torch.py`` would replace the real module. ``-P`` prevents the former, :func:`environment` the
latter. ``-I`` would ignore PYTHONPATH entirely, which machines without an installation need.
"""

from __future__ import annotations

import os
import site
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TextIO

#: The folder that contains this package.
_ROOT = str(Path(__file__).resolve().parents[2])


def command(module: str, *arguments: str) -> list[str]:
    """The command line that runs a module of this package with this interpreter."""
    return [sys.executable, "-P", "-m", module, *arguments]


def child(module: str, *words: str) -> Callable[[Path, Path], list[str]]:
    """(task file, journal) → the command line of a child module, with these words after them."""
    return lambda task_file, journal: command(module, str(task_file), str(journal), *words)


def answers() -> TextIO:
    """This process's standard output, for its answers alone: what a suite's code prints goes to standard error."""
    stream = os.fdopen(os.dup(1), "w", encoding="utf-8", buffering=1)
    os.dup2(2, 1)
    return stream


def environment(base: Mapping[str, str] | None = None) -> dict[str, str]:
    """The environment for :func:`command`: PYTHONPATH with only absolute folders, including this package's.

    Args:
        base: the initial environment (default: this process's).
    """
    variables = dict(os.environ if base is None else base)
    folders = [p for p in variables.pop("PYTHONPATH", "").split(os.pathsep) if os.path.isabs(p) and p != _ROOT]
    # PYTHONPATH precedes the standard library, so it must not contain site-packages, which is searched anyway.
    if _ROOT not in (*site.getsitepackages(), site.getusersitepackages()):
        folders.insert(0, _ROOT)
    return {**variables, "PYTHONPATH": os.pathsep.join(folders)} if folders else variables
