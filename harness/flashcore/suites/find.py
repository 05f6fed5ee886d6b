"""Finds the suite of a command, and the roofs suite that ships with flashcore."""

from __future__ import annotations

from pathlib import Path

from flashcore.errors import UsageError
from flashcore.suites.parts import MANIFEST

#: Where to look for a suite, relative to a folder.
NEAR = (MANIFEST, f"kernels/{MANIFEST}", f"kernels/*/{MANIFEST}")


def roofs_suite() -> Path:
    """The folder of the suite that measures roofs: ``kernels/roofs`` in a checkout, else in the installed package.

    The path is relative if it is below the current folder, so that records do not depend on the checkout's location.
    """
    folder = (Path(__file__).parents[1] / "roofs_suite").resolve()
    return folder.relative_to(Path.cwd()) if folder.is_relative_to(Path.cwd()) else folder


def all_near(folder: Path) -> list[Path]:
    """The suites of ``folder``. The roofs suite below ``kernels`` does not count: ``flashcore roofs`` runs it."""
    roofs = (roofs_suite() / MANIFEST).read_bytes()
    files = (path for place in NEAR for path in sorted(folder.glob(place)))
    return [path.parent for path in files if path.parent == folder or path.read_bytes() != roofs]


def near(folder: Path) -> Path:
    """The only suite of ``folder``.

    Raises:
        UsageError: there is none, or several.
    """
    suites = all_near(folder)
    if len(suites) == 1:
        return suites[0]
    names = ", ".join(map(str, suites)) or "none"
    hint = "name one with --suite" + ("" if suites else ", or create one with: flashcore init DIR")
    raise UsageError(f"{folder}: expected one suite here ({', '.join(NEAR)}), found {names}\n  hint: {hint}")


def _enclosing() -> list[Path]:
    """The relative paths of this folder and those above it in its git repository; only of this one if there is none."""
    here = Path.cwd()
    top = next((i for i, folder in enumerate([here, *here.parents]) if (folder / ".git").exists()), 0)
    return [Path(*[".."] * i) for i in range(top + 1)]


def base() -> Path:
    """The relative path of the nearest folder that is or has a suite: this one, or one above it in the git repository;
    this one if there is none."""
    return next((folder for folder in _enclosing() if any(any(folder.glob(place)) for place in NEAR)), Path())


def of_project(folder: str) -> str:
    """The path of a folder such as ``build``: in :func:`base` if it exists there, else at the top of the git
    repository. Outside of a repository it is in :func:`base`, or in the project if that is a suite in ``kernels``."""
    start, top = base(), _enclosing()[-1]
    parts = start.resolve().parts[-2:]
    if (start / folder).exists():
        pass
    elif (top / ".git").exists():
        start = top
    elif (start / MANIFEST).is_file() and "kernels" in parts:
        start = start.joinpath(*[".."] * (2 - parts.index("kernels")))
    return str(start / folder)


def suite_folder(suite: str | None) -> str:
    """The folder of the suite that ``--suite`` names by folder or manifest; by default the suite near :func:`base`.

    Raises:
        UsageError: it names another file, or there is not exactly one suite near :func:`base`.
    """
    if suite is None:
        return str(near(base()))
    path = Path(suite)
    if path.is_file():
        if path.name != MANIFEST:
            raise UsageError(f"--suite {suite}: expected a suite's folder or its {MANIFEST}, found another file")
        path = path.parent
    return str(path)
