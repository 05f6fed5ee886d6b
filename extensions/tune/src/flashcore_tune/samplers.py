"""Samplers, which propose the next candidates: Optuna's by ask and tell, or all points in order.

Points that break a condition, and points with a recorded result, are answered here and cost nothing. A resumed search
tells its sampler the study's results again, so it only needs ``results.jsonl``.
"""

from __future__ import annotations

import importlib.util
import math
import random
import warnings
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from flashcore.errors import CapabilityError, MissingPackage
from flashcore_tune.grid import Grid
from flashcore_tune.study import Header, Result
from flashcore_tune.summary import TIME, objective_names, objective_values

if TYPE_CHECKING:
    from optuna import Trial

SAMPLERS = ("nsga2", "tpe", "gp", "random", "grid")
#: After this many proposals in a row with recorded results, a random point is proposed. A model is slow to ask, and
#: repeats itself.
_PATIENCE, _PATIENCE_WITH_MODEL = 30, 3
#: A space with more feasible points is big.
BIG = 500


class Pace(NamedTuple):
    """How fast candidates are proposed.

    Args:
        batch: the number of candidates built together, and measured by one process.
        ahead: whether the next batch is proposed and built while one is measured. Then the GPU never waits, but the
            sampler is one batch behind, which a small budget cannot afford.
    """

    batch: int = 1
    ahead: bool = False


def pace(kind: str, count: float) -> Pace:
    """The pace of a sampler for a budget of ``count`` evaluations."""
    if kind in ("grid", "random"):
        return Pace(64, True)
    return Pace(16, True) if count >= 320 else Pace(max(1, int(count) // 20))


class Exhaustive:
    """All points that meet the conditions and have no recorded result, in the space's order."""

    def __init__(self, grid: Grid, recorded: Mapping[int, Result]) -> None:
        self._left = [i for i in reversed(grid.feasible) if i not in recorded]

    def ask(self, count: int) -> list[int]:
        """Up to ``count`` points that are neither recorded nor proposed yet."""
        return [self._left.pop() for _ in range(min(count, len(self._left)))]

    def tell(self, result: Result) -> None:
        """Learns a candidate's result."""


class Proposing:
    """One of Optuna's samplers, with the methods of :class:`Exhaustive`.

    Args:
        header: names the sampler and its seed.
        recorded: the study's results so far, in their order.
        count: total evaluations, which determine the population size, or the number of random points at the start.
        first: points to begin with.

    Raises:
        CapabilityError: Optuna, or a package of the sampler, is not installed.
    """

    def __init__(
        self,
        header: Header,
        grid: Grid,
        recorded: Mapping[int, Result],
        count: float = math.inf,
        first: Sequence[int] = (),
    ) -> None:
        optuna = load_optuna(header.sampler)
        self._grid = grid
        self._results: dict[int, Result] = {}
        self._waiting: dict[int, list[Trial]] = {}  # point → the trials that wait for its result
        self._patience = _PATIENCE_WITH_MODEL if header.sampler in ("tpe", "gp") else _PATIENCE
        self._objectives = objective_names(grid.space)
        self._distributions = distributions(grid)
        seed = header.seed + len(recorded)  # a resumed search must not propose the same points again
        self._random = random.Random(seed)
        sampler = _optuna_sampler(optuna, header.sampler, seed, max(4, int(min(24, count / 6))))
        # NSGA-II assigns trials to generations as they are asked for; a model would be fitted for each of them.
        replaying = sampler if header.sampler == "nsga2" else optuna.samplers.RandomSampler()
        self._study = optuna.create_study(sampler=replaying, directions=["minimize"] * len(self._objectives))
        for result in recorded.values():
            self._results[result.index] = result
            self._enqueue(result.index)
            self._answer(self._study.ask(self._distributions), result)
        self._study.sampler = sampler
        for index in first:
            if index not in recorded:
                self._enqueue(index)

    def ask(self, count: int) -> list[int]:
        axes = self._grid.space.axes
        points: list[int] = []
        room = min(count, len(self._grid.feasible) - len(self._results) - len(self._waiting))
        without_new = 0
        while len(points) < room:
            if without_new and without_new % self._patience == 0:
                self._enqueue(self._random.choice([i for i in self._grid.feasible if self._is_new(i)]))
            trial = self._study.ask(self._distributions)
            index = self._grid.index({axis: values[trial.params[axis]] for axis, values in axes.items()})
            without_new += 1
            if broken := self._grid.broken(index):
                self._answer(trial, Result(index, "static", broken))
            elif index in self._results:
                self._answer(trial, self._results[index])
            else:
                if self._is_new(index):
                    points.append(index)
                    without_new = 0
                self._waiting.setdefault(index, []).append(trial)
        return points

    def tell(self, result: Result) -> None:
        self._results[result.index] = result
        for trial in self._waiting.pop(result.index, []):
            self._answer(trial, result)

    def _is_new(self, index: int) -> bool:
        return index not in self._results and index not in self._waiting

    def _enqueue(self, index: int) -> None:
        self._study.enqueue_trial(self._grid.places(index))

    def _answer(self, trial: Trial, result: Result) -> None:
        """A rejected candidate is infeasible, and counts as bad as the worst timed one. Failed soft budgets do not make
        a candidate infeasible."""
        trial.set_constraint("measured", float(bool(result.fell)))
        self._study.tell(trial, self._values(result) or self._worst())

    def _worst(self) -> list[float]:
        timed = [values for result in self._results.values() if (values := self._values(result))]
        return [max(column) for column in zip(*timed, strict=True)] if timed else [1.0] * len(self._objectives)

    def _values(self, result: Result) -> list[float] | None:
        """A timed candidate's objectives, times as logarithms of us."""
        values = objective_values(result, self._objectives)
        return values and [
            math.log(value) if name.startswith(TIME) else value
            for name, value in zip(self._objectives, values, strict=True)
        ]


Sampler = Exhaustive | Proposing


def distributions(grid: Grid) -> dict[str, Any]:
    """Optuna's distribution of each axis: places of values, in order where the values are numbers."""
    optuna = load_optuna()
    return {
        axis: optuna.distributions.IntDistribution(0, len(values) - 1)
        if all(isinstance(v, int) for v in values)
        else optuna.distributions.CategoricalDistribution(list(range(len(values))))
        for axis, values in grid.space.axes.items()
    }


def _optuna_sampler(optuna: Any, kind: str, seed: int, size: int) -> Any:
    """Optuna's sampler. ``size``: of the population, or the number of random points at the start."""
    samplers = optuna.samplers
    match kind:
        case "random":
            return samplers.RandomSampler(seed=seed)
        case "tpe":
            return samplers.TPESampler(seed=seed, multivariate=True, n_startup_trials=size)
        case "gp":
            return samplers.GPSampler(seed=seed, deterministic_objective=True, n_startup_trials=size)
        case _:
            return samplers.NSGAIISampler(seed=seed, population_size=size)


def load_optuna(kind: str = "") -> Any:
    """Optuna, without its log and warnings, and with the packages that the sampler of this kind needs.

    Raises:
        MissingPackage: it is not installed.
    """
    try:
        import optuna
    except ModuleNotFoundError as error:
        raise MissingPackage("every sampler but grid", "optuna", ", or --sampler grid") from error
    for name in ("scipy", "torch") if kind == "gp" else ():
        if importlib.util.find_spec(name) is None:
            raise MissingPackage("the sampler gp", name, ", or --sampler nsga2")
    optuna.logging.set_verbosity(optuna.logging.ERROR)
    warnings.filterwarnings("ignore", category=optuna.exceptions.ExperimentalWarning)
    return optuna


# --- importance ------------------------------------------------------------------------------------

METHOD = "PED-ANOVA (Optuna)"
#: The share, and the least number, of the fastest candidates that are compared with all.
_TOP, _FEWEST = 0.1, 5


class Importance(NamedTuple):
    """Axis → its share of 1, the most important first; empty for ``reason``. ``top`` of the timed candidates were
    compared with all."""

    shares: Mapping[str, float] = {}
    top: int = 0
    reason: str = ""


def importance(grid: Grid, timed: Sequence[Result], shape: str) -> Importance:
    """Returns how much each axis matters for the time at a shape, by Optuna's PED-ANOVA (Watanabe et al., IJCAI 2023).

    It compares the values of the fastest candidates with those of all. Unlike fANOVA it does not need scikit-learn.
    """
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
    evaluator = optuna.importance.PedAnovaImportanceEvaluator(target_quantile=top / len(timed))
    shares = dict.fromkeys(grid.space.axes, 0.0) | optuna.importance.get_param_importances(study, evaluator=evaluator)
    # The last digits depend on the machine's BLAS; a page must not.
    return Importance({axis: round(share, 9) for axis, share in sorted(shares.items(), key=lambda p: -p[1])}, top)
