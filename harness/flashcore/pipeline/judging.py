"""Checks records against their suite's budgets and baseline."""

from __future__ import annotations

import fnmatch
import os
from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import UTC, date, datetime
from functools import cached_property
from pathlib import Path

from flashcore.errors import Exit, UsageError, worst
from flashcore.explain.answer import Answers
from flashcore.explain.readings import Readings
from flashcore.explain.verdict import Verdict
from flashcore.gate import baseline, judge, regressions
from flashcore.gate.baseline import DEFAULT, Baseline
from flashcore.gate.judge import Judgement
from flashcore.model.record import Record
from flashcore.model.suite import TIERS, Budget, Suite, Tier
from flashcore.model.text import did_you_mean
from flashcore.suites.load import narrowed, select


@dataclass(frozen=True, slots=True, kw_only=True)
class Rules:
    """How to judge records.

    Args:
        require: the highest tier whose missing facts are gaps.
        budgets: budgets in addition to the suite's. Their facts are required in any tier.
        variants: globs of the variants to judge; empty for all.
        shapes: the names of the shapes to judge; empty for all. A baseline is compared on all.
        archs: the archs to judge; empty for all of the record.
        compare: whether to compare with a baseline.
        baseline: the baseline's file; ``None`` for the suite's, which need not exist.
        more: further verdicts; a failed one fails the gate.
        base: a revision and its baseline: the changes shown are those since then.
        day: the day to compare waivers' dates with; ``None`` for today.
    """

    require: Tier = TIERS[0]
    budgets: Sequence[Budget] = ()
    variants: tuple[str, ...] = ()
    shapes: tuple[str, ...] = ()
    archs: tuple[str, ...] = ()
    compare: bool = True
    baseline: str | None = None
    more: Sequence[Verdict] = ()
    base: tuple[str, Baseline] | None = None
    day: date | None = None


@dataclass(frozen=True)
class Judged:
    """A record, with all budgets that it was judged by, and the result.

    Args:
        variants: the names of the variants that ``Rules.variants`` select; ``None`` for all.
        file: the baseline's path, if the record is compared with one; ``baseline`` is its content, if it exists.
    """

    record: Record
    judgement: Judgement
    variants: Sequence[str] | None
    file: Path | None
    baseline: Baseline | None

    @cached_property
    def answers(self) -> Answers:
        """The answers for the record's cases."""
        return Answers(Readings(self.record), self.judgement)


def judge_record(rules: Rules, record: Record) -> Judged:
    """Judges a run.

    Raises:
        UsageError: no variant or shape matches, or the baseline cannot be read or is another suite's.
    """
    record = replace(record, suite=replace(record.suite, budgets=(*record.suite.budgets, *rules.budgets)))
    file, old = baseline_of(record.suite, rules)
    for budget in rules.budgets:
        _require_matches(budget, record.suite)
    variants = None
    if rules.variants:
        variants = [v.name for v in select(record.suite, rules.variants)[0] if not v.is_reference]
    judgement = judge.judge(
        replace(record, suite=narrowed(record.suite, (), rules.shapes, rules.archs)),
        require=rules.require,
        today=rules.day or today(),
        variants=variants,
        baseline=old,
        required_budgets=[budget.name for budget in rules.budgets],
    )
    failed = [Exit.FAILED for verdict in rules.more if verdict.status == "fail"]
    verdicts, code = (*judgement.verdicts, *rules.more), worst([judgement.exit_code, *failed])
    judgement = replace(judgement, verdicts=verdicts, exit_code=code)
    if rules.base:
        revision, before = rules.base
        judgement = replace(judgement, changed=regressions.changed(record, before, variants, revision))
    if file and not old:
        missing = f"no baseline: there is no {file} to compare with (flashcore baseline save writes it)"
        judgement = replace(judgement, notes=(*judgement.notes, missing))
    return Judged(record, judgement, variants, file, old)


def _require_matches(budget: Budget, suite: Suite) -> None:
    """Requires that every glob of a budget from ``--budgets`` matches something, or the budget could never fail.

    Raises:
        UsageError: a glob matches nothing in the suite.
    """
    for part in ("variants", "shapes", "archs") if budget.tier == "static" else ("variants", "shapes"):
        names = set(getattr(suite, part))
        for glob in getattr(budget, part):
            if not fnmatch.filter(names, glob):
                raise UsageError(
                    f"budget {budget.name}: {part}: expected a glob that matches one of {', '.join(sorted(names))}, "
                    f"found {glob!r}{did_you_mean(glob, names)}"
                )


def baseline_of(suite: Suite, rules: Rules) -> tuple[Path | None, Baseline | None]:
    """The path of the baseline to compare with, and its content, if it exists.

    Raises:
        UsageError: the baseline cannot be read or is another suite's.
    """
    file = baseline_path(suite, rules.baseline) if rules.compare else None
    old = baseline.read(file) if file else None
    if old and not (old.values and old.suite == suite.name):
        raise UsageError(
            f"{file}: expected a baseline of {suite.name}, found one of {old.suite} with {len(old.values)} "
            "facts\n  hint: give another file, or write it again with: flashcore baseline save"
        )
    return file, old


def today() -> date:
    """The day to compare waivers' dates with: today in UTC."""
    return datetime.now(UTC).date()


def baseline_path(suite: Suite, named: str | None = None, *, new: bool = False) -> Path:
    """The path of the suite's baseline: ``named``, else the manifest's, else the default.

    Raises:
        UsageError: the manifest's path leads out of the suite's folder, also through a link; or a named file does not
            exist. Only the default file may be missing.
    """
    root = Path(suite.root)
    declared = suite.gate.baseline
    path = Path(named) if named is not None else root / (declared or DEFAULT)
    if named is None and not path.resolve().is_relative_to(root.resolve()):
        raise UsageError(f"{path}: expected a baseline within the suite's folder, found {path.resolve()}")
    if not path.is_file() and (named or declared or os.path.lexists(path)) and not new:
        raise UsageError(
            f"{path}: expected the {'given' if named else 'declared'} baseline, found no such file\n"
            "  hint: correct the name, or write it with: flashcore baseline save, or audit --save-baseline"
        )
    return path
