"""The place of a verdict without a line of source: code hosts drop or refuse results that have none."""

from __future__ import annotations

import os

from flashcore.gate.locate import Place, Places
from flashcore.suites.load import MANIFEST


def manifest(places: Places) -> Place:
    """The first line of the suite's manifest, or of the ``flashcore.toml`` of an audit."""
    names = (MANIFEST, *places.suite.manifests)
    name = next((name for name in names if (places.folder / name).is_file()), names[-1])
    return Place(os.path.relpath((places.folder / name).resolve(), places.root), 1)
