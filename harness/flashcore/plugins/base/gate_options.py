"""``flashcore gate --base REV``: fails if a limit is looser than in a base revision."""

from __future__ import annotations

import argparse
from dataclasses import replace
from fnmatch import fnmatchcase
from pathlib import Path

from flashcore.cli import gate
from flashcore.errors import UsageError
from flashcore.gate import baseline
from flashcore.gate.judge import Verdict
from flashcore.model.record import Subject
from flashcore.model.suite import Suite
from flashcore.pipeline.judging import today
from flashcore.plugins.base.loosened import Loosened, everything
from flashcore.plugins.base.revision import Revision, extracted
from flashcore.suites.find import suite_folder
from flashcore.suites.load import load


def add_arguments(parser: argparse.ArgumentParser) -> None:
    text = "list what is looser than in this git revision, and fail"
    parser.add_argument("--base", metavar="REV", help=text)
    text = "with --base: what may be looser, such as budget:registers or baseline:NAME; repeatable"
    parser.add_argument("--allow", action="append", default=[], metavar="GLOB", help=text)


def run(arguments: argparse.Namespace) -> int | None:
    if arguments.base is None:
        if arguments.allow:
            raise UsageError("--allow: expected together with --base REV, found it alone")
        return None
    for name in ("recorded", "baseline"):
        if getattr(arguments, name):
            option = "RUN" if name == "recorded" else "--baseline"
            hint = (
                "commit the file and name it in suite.toml: [gate] baseline" if name == "baseline" else "leave it out"
            )
            raise UsageError(
                f"--base: expected without {option}: it compares the suite and its baseline as committed; found both\n"
                f"  hint: {hint}"
            )
    suite = load(suite_folder(arguments.suite))
    with extracted(arguments.base, Path(suite.root)) as revision:
        changes = _changes(suite, revision, arguments.budgets)
    return gate.run(arguments, [_verdict(change, arguments.base, arguments.allow) for change in changes])


def _changes(suite: Suite, revision: Revision, budgets: str | None) -> list[Loosened]:
    """The limits of the working tree's suite that are looser than the revision's.

    Args:
        budgets: a file of further budgets.
    """
    folder = revision.folder(suite.name)
    if folder is None:
        removed = revision.removed()
        return [Loosened("suite", path, f"removed; {suite.root} is not in the base") for path in removed]
    base = revision.load(folder)
    if budgets:
        from flashcore.suites.budgets import read  # imports pydantic

        suite = replace(suite, budgets=(*suite.budgets, *read(Path(budgets))))
        if before := revision.file(Path(budgets)):
            base = replace(base, budgets=(*base.budgets, *read(before)))
    files = [Path(one.root) / (one.gate.baseline or baseline.DEFAULT) for one in (base, suite)]
    return everything((base, baseline.read(files[0])), (suite, baseline.read(files[1])), today())


def _verdict(change: Loosened, revision: str, allowed: list[str]) -> Verdict:
    glob = next((glob for glob in allowed if fnmatchcase(change.key, glob)), None)
    accepted = f" (allowed by --allow {glob})" if glob else " (it has no variant left)" if change.gone else ""
    return Verdict(
        budget="base",
        fact="loosened",
        subject=Subject(change.key),
        tier="static",
        severity="limit",
        status="waived" if accepted else "fail",
        value=False,
        unit="",
        limit=f"as in {revision}",
        source=f"base revision {revision}",
        reason=change.text + accepted,
        required=True,
    )
