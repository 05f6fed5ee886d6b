"""How children that run this package are started, so that nothing of the user's folder is imported by mistake.

``python -m`` puts the current folder first on ``sys.path``, and so does an empty or relative entry of PYTHONPATH: a
user's ``json.py`` or ``torch.py`` would then replace the real one. ``-P`` prevents the first, and
:func:`environment` the second. ``-I`` would ignore PYTHONPATH as a whole, and with it packages that were
carried to a machine where nothing can be installed.
"""

from __future__ import annotations

import os
import site
import sys
from collections.abc import Callable, Mapping
from pathlib import Path

#: The folder that holds this package.
_ROOT = str(Path(__file__).resolve().parents[3])


def command(module: str, *arguments: str) -> list[str]:
    """The command line that runs a module of this package with the present interpreter."""
    return [sys.executable, "-P", "-m", module, *arguments]


def child(module: str) -> Callable[[Path, Path], list[str]]:
    """The same for a module that is a child: given its task file and its journal."""
    return lambda task_file, journal: command(module, str(task_file), str(journal))


def environment(given: Mapping[str, str] | None = None) -> dict[str, str]:
    """The environment for :func:`command`: PYTHONPATH with only absolute folders, this package's own among them.

    Args:
        given: the environment to start from (default: this process's).
    """
    variables = dict(os.environ if given is None else given)
    folders = [p for p in variables.pop("PYTHONPATH", "").split(os.pathsep) if os.path.isabs(p) and p != _ROOT]
    # PYTHONPATH comes before the standard library, so site-packages, which is searched anyway, must not be in it.
    if _ROOT not in (*site.getsitepackages(), site.getusersitepackages()):
        folders.insert(0, _ROOT)
    return {**variables, "PYTHONPATH": os.pathsep.join(folders)} if folders else variables
