"""How much each axis of a space matters, by Optuna's PED-ANOVA.

fANOVA would need scikit-learn; PED-ANOVA (Watanabe et al., IJCAI 2023) needs nothing beside Optuna. It compares where
the fastest candidates lie with where all do: an axis matters if the fastest share its values.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Sequence
from dataclasses import dataclass, field

from flashcore.errors import CapabilityError
from flashcore.plugins.tune.grid import Grid
from flashcore.plugins.tune.samplers import distributions, load_optuna
from flashcore.plugins.tune.study import Result

METHOD = "PED-ANOVA (Optuna)"
#: The share of the fastest that are compared with all, and how many they are at least: fewer say nothing.
_TOP, _FEWEST = 0.1, 5


@dataclass(frozen=True, slots=True)
class Importance:
    """Axis → its share of 1, the most important first; none with a ``reason`` why. ``top`` of the timed candidates were
    the fastest."""

    shares: dict[str, float] = field(default_factory=dict)
    top: int = 0
    reason: str = ""


def importance(grid: Grid, timed: Sequence[Result], shape: str) -> Importance:
    """The importance of each axis for the time at a shape."""
    top = max(_FEWEST, round(_TOP * len(timed)))
    if len(timed) < 4 * _FEWEST:
        return Importance(reason=f"expected at least {4 * _FEWEST} timed candidates, found {len(timed)}")
    axes = {axis: values for axis, values in grid.space.axes.items() if len(values) > 1}
    try:
        optuna = load_optuna()
    except CapabilityError as error:
        return Importance(reason=str(error.what))
    known = {axis: own for axis, own in distributions(grid).items() if axis in axes}
    study = optuna.create_study()
    for r in timed:
        point = grid.point(r.index)
        places = {axis: values.index(point[axis]) for axis, values in axes.items()}
        study.add_trial(optuna.trial.create_trial(params=places, distributions=known, value=math.log(r.times[shape])))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", optuna.exceptions.ExperimentalWarning)
        evaluator = optuna.importance.PedAnovaImportanceEvaluator(target_quantile=top / len(timed))
    found = optuna.importance.get_param_importances(study, evaluator=evaluator)
    shares = {**dict.fromkeys(grid.space.axes, 0.0), **found}
    return Importance(dict(sorted(shares.items(), key=lambda pair: -pair[1])), top)
