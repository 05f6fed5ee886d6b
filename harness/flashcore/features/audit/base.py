"""``flashcore audit --base REV``: fails if a limit of ``flashcore.toml`` is looser than in a base revision."""

from __future__ import annotations

import argparse
from collections.abc import Collection
from dataclasses import replace
from pathlib import Path

from flashcore.explain.verdict import Verdict
from flashcore.features.audit import limits
from flashcore.gate import baseline
from flashcore.gate.baseline import Baseline
from flashcore.gate.loosened import Loosened, everything, verdict
from flashcore.model.groups import grouped
from flashcore.model.suite import Suite, Where
from flashcore.pipeline.judging import today
from flashcore.pipeline.revision import extracted


def compared(
    revision_name: str, arguments: argparse.Namespace, bare: Suite, suite: Suite, kernels: Collection[str]
) -> tuple[list[Verdict], Baseline | None]:
    """A verdict on each limit that is looser than in the base revision, and the baseline there.

    Args:
        revision_name: the git revision.
        bare: the suite without limits.
        suite: the suite with this project's limits.
        kernels: the kernels' names.

    Raises:
        UsageError: there is no such revision.
    """
    with extracted(revision_name, Path(suite.root)) as revision:
        project = Path(limits.FILE)
        forms = [limits.read(file)[0] for file in (revision.file(project), project)]
        paths = [Path(path) if (path := arguments.baseline or form.baseline) else None for form in forms]
        files = paths[0] and revision.file(paths[0]), paths[1]
        before, after = (baseline.read(file) if file else None for file in files)
        # Mistakes of the base's limits, such as globs that no longer match, do not count.
        old, _ = limits.limited(_with_places(bare, before), forms[0], arguments, kernels)
        changes = everything((old, before), (suite, after), today())
    removed = [Loosened("files", one, "removed") for one in forms[0].files if one not in forms[1].files]
    return [verdict(change, revision_name, arguments.allow) for change in (*removed, *changes)], before


def _with_places(suite: Suite, lines: Baseline | None) -> Suite:
    """The suite with the baseline's files and archs, since a change may remove these and their lines."""
    if not (lines and suite.variants):
        return suite
    like = next(iter(suite.variants.values()))
    places = grouped(dict.fromkeys((key.variant, key.arch) for key in lines.values))
    return replace(suite, variants={v: replace(like, name=v, where=Where(tuple(archs))) for v, archs in places.items()})
