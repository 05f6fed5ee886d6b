"""How much each axis of a space matters, by Optuna's PED-ANOVA (Watanabe et al., IJCAI 2023).

It compares where the fastest candidates lie with where all do: an axis matters if the fastest share its values. Unlike
fANOVA it does not need scikit-learn.
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
    """Axis → its share of 1, the most important first; if none, ``reason`` says why. ``top`` of the timed candidates
    were the fastest."""

    shares: dict[str, float] = field(default_factory=dict)
    top: int = 0
    reason: str = ""


def importance(grid: Grid, timed: Sequence[Result], shape: str) -> Importance:
    """The importance of each axis for the time at a shape."""
    if len(timed) < 4 * _FEWEST:
        return Importance(reason=f"expected at least {4 * _FEWEST} timed candidates, found {len(timed)}")
    try:
        optuna = load_optuna()
    except CapabilityError as error:
        return Importance(reason=str(error.what))
    top = max(_FEWEST, round(_TOP * len(timed)))
    axes = {axis: values for axis, values in distributions(grid).items() if len(grid.space.axes[axis]) > 1}
    study = optuna.create_study()
    for r in timed:
        places = grid.places(r.index)
        study.add_trial(
            optuna.trial.create_trial(
                params={axis: places[axis] for axis in axes}, distributions=axes, value=math.log(r.times[shape])
            )
        )
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", optuna.exceptions.ExperimentalWarning)
        evaluator = optuna.importance.PedAnovaImportanceEvaluator(target_quantile=top / len(timed))
    shares = dict.fromkeys(grid.space.axes, 0.0) | optuna.importance.get_param_importances(study, evaluator=evaluator)
    # The last digits depend on the machine's BLAS; a page must not.
    return Importance({axis: round(share, 9) for axis, share in sorted(shares.items(), key=lambda p: -p[1])}, top)
