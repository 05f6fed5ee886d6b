"""Finds the suite that the user means, and the roofs suite that comes with flashcore."""

from __future__ import annotations

from pathlib import Path

from flashcore.errors import UsageError
from flashcore.suites.parts import MANIFEST

#: Where a suite is looked for, from the current folder.
NEAR = (MANIFEST, f"kernels/{MANIFEST}", f"kernels/*/{MANIFEST}")


def roofs_suite() -> Path:
    """The folder of the suite that measures a machine's roofs: ``kernels/roofs`` in a checkout, in the package where
    it is installed. Relative where it lies below the current folder, so that records name it alike everywhere."""
    folder = (Path(__file__).parents[1] / "roofs_suite").resolve()
    return folder.relative_to(Path.cwd()) if folder.is_relative_to(Path.cwd()) else folder


def near(folder: Path) -> Path:
    """The suite of ``folder``, where there is exactly one. The roofs suite below ``kernels`` does not count: it
    measures machines, and ``flashcore roofs`` runs it.

    Raises:
        UsageError: there is none, or several.
    """
    roofs = (roofs_suite() / MANIFEST).read_bytes()
    files = (path for place in NEAR for path in sorted(folder.glob(place)))
    manifests = [path for path in files if path.parent == folder or path.read_bytes() != roofs]
    if len(manifests) == 1:
        return manifests[0].parent
    names = ", ".join(str(p.parent) for p in manifests) or "none"
    hint = "name one with --suite" if manifests else "name one with --suite, or make one with: flashcore init DIR"
    raise UsageError(f"{folder}: expected one suite here ({', '.join(NEAR)}), found {names}\n  hint: {hint}")


def base() -> Path:
    """The nearest of this folder and those above it, up to the top of its git repository, that is or has a suite;
    this folder if none has, or outside of a repository. Relative."""
    here = Path.cwd()
    folders = [here, *here.parents]
    top = next((i for i, folder in enumerate(folders) if (folder / ".git").exists()), 0)
    with_suite = (i for i, folder in enumerate(folders[: top + 1]) if any(any(folder.glob(place)) for place in NEAR))
    return Path(*[".."] * next(with_suite, 0))


def of_project(folder: str) -> str:
    """The path of a folder such as ``build``: in :func:`base` or, where that is a suite in a project's ``kernels`` and
    has no such folder, in the project."""
    start = base()
    parts = start.resolve().parts[-2:]
    if (start / MANIFEST).is_file() and "kernels" in parts and not (start / folder).exists():
        start = start.joinpath(*[".."] * (2 - parts.index("kernels")))
    return str(start / folder)


def suite_folder(given: str | None) -> str:
    """The folder of the suite that ``--suite`` names, by itself or by its manifest; without it the one near
    :func:`base`.

    Raises:
        UsageError: it names another file; none, or several, are near.
    """
    if given is None:
        return str(near(base()))
    path = Path(given)
    if path.is_file():
        if path.name != MANIFEST:
            raise UsageError(f"--suite {given}: expected a suite's folder or its {MANIFEST}, found another file")
        path = path.parent
    return str(path)
