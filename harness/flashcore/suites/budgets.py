"""Budgets in a file of their own, for records without a suite on disk: ``[[budget]]`` tables as in a manifest, whose
facts may also be ncu's own metrics, in ncu's unit."""

from __future__ import annotations

import tomllib
from pathlib import Path

from pydantic import ValidationError

from flashcore.errors import ManifestError, UsageError
from flashcore.model.catalogue import FACTS, spec_of
from flashcore.model.suggest import did_you_mean
from flashcore.model.suite import Budget
from flashcore.suites import schema


class BudgetOfAny(schema.BudgetForm):
    """``[[budget]]`` on a fact of the catalogue or a metric of ncu's."""

    fact: schema.Text
    source: schema.Text = "budgets"


class BudgetFile(schema.Form):
    """The file."""

    budget: list[BudgetOfAny]


def read(path: Path) -> tuple[Budget, ...]:
    """The budgets of a file.

    Raises:
        UsageError: there is no such file.
        ManifestError: it is wrong; holds every mistake found.
    """
    try:
        data = tomllib.loads(path.read_text(encoding="utf-8"))
        forms = BudgetFile.model_validate(data).budget
    except OSError as error:
        raise UsageError(f"{path}: expected a file of budgets, cannot read it: {error.strerror}") from error
    except ValidationError as error:
        raise ManifestError(str(path), schema.mistakes(error.errors(), data, BudgetFile)) from error
    except ValueError as error:
        raise ManifestError(str(path), [f"not valid TOML: {error}"]) from error
    wrong = [mistake for at, form in enumerate(forms) for mistake in _mistakes(at, form)]
    if wrong or not forms:
        raise ManifestError(str(path), wrong or ["budget: expected at least one [[budget]], found none"])
    return tuple(_budget(form) for form in forms)


def _mistakes(at: int, form: BudgetOfAny) -> list[str]:
    key = f"budget[{at}] ({form.name})"
    spec = spec_of(form.fact)
    found = []
    if spec is None or spec.tier is None or (form.fact not in FACTS and "__" not in form.fact):
        known = "a fact with a number (flashcore list --facts), or a metric of ncu's"
        found.append(f"{key}.fact: expected {known}, found {form.fact!r}{did_you_mean(form.fact, FACTS)}")
    if form.min is None and form.max is None:
        found.append(f"{key}: expected a `min`, a `max` or both, found neither")
    elif form.min is not None and form.max is not None and form.min > form.max:
        found.append(f"{key}: expected min <= max, found {form.min} > {form.max}")
    if form.documents is not None:
        found.append(f"{key}.documents: expected only in a manifest, which names documents, found it here")
    return found


def _budget(form: BudgetOfAny) -> Budget:
    spec = spec_of(form.fact)
    assert spec is not None and spec.tier is not None
    return Budget(
        form.name, form.fact, spec.unit, spec.tier, form.severity, form.source, form.min, form.max, form.stretch,
        tuple(form.variants), tuple(form.archs), tuple(form.shapes), tuple(form.kernels), form.device,
    )  # fmt: skip
