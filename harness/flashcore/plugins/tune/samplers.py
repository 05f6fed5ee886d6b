"""Samplers, which propose the next candidates: Optuna's by ask and tell, or all points in order.

Points that break a condition, and points that are known already, are answered here and cost nothing. What Optuna
knows is in its own journal beside the results; after a kill the results show which of its trials were never answered.
"""

from __future__ import annotations

import importlib.util
import math
import random
import warnings
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from flashcore.errors import CapabilityError
from flashcore.plugins.tune.grid import Grid
from flashcore.plugins.tune.study import Result

if TYPE_CHECKING:
    from optuna import Study as Optuna
    from optuna import Trial

SAMPLERS = ("nsga2", "tpe", "gp", "random", "grid")
#: After so many known points in a row a random point is taken instead: a model is slow to ask, and proposes the same
#: again.
_STUCK, _STUCK_OF_MODEL = 30, 3
#: Points that meet the conditions, above which a space is big.
BIG = 500


def pace(kind: str, count: int | None) -> tuple[int, bool]:
    """Candidates per batch, and whether the next batch is proposed while one is measured. Points proposed without the
    last results are chosen blindly, which a small budget cannot afford.

    Args:
        count: evaluations in all, as far as they are limited.
    """
    if kind in ("grid", "random"):
        return 64, True
    return (16, True) if count is None or count >= 320 else (max(1, count // 20), False)


class Sampler(Protocol):
    """Proposes candidates and is told their outcomes."""

    def ask(self, count: int) -> list[int]:
        """Up to so many points that are not known and not under way; none if there are none left."""

    def tell(self, result: Result) -> None: ...


class Exhaustive:
    """Every point that meets the conditions, in the space's order.

    Args:
        known: what was found before.
    """

    def __init__(self, grid: Grid, known: Mapping[int, Result]) -> None:
        self._left = [i for i in reversed(grid.feasible) if i not in known]

    def ask(self, count: int) -> list[int]:
        return [self._left.pop() for _ in range(min(count, len(self._left)))]

    def tell(self, result: Result) -> None: ...


class Proposing:
    """One of Optuna's samplers.

    Args:
        kind: one of :data:`SAMPLERS`, but ``grid``.
        known: what was found before; the same journal knows of it.
        count: evaluations in all, which decides the population size, or the number of random points at the start.
        first: points to begin with.
        journal: a file that keeps what Optuna knows; in memory without one.

    Raises:
        CapabilityError: Optuna, or what the sampler needs, is not installed.
    """

    def __init__(
        self, kind: str, grid: Grid, known: Mapping[int, Result], *, seed: int, count: int | None = None,
        first: Sequence[int] = (), journal: Path | None = None,
    ) -> None:  # fmt: skip
        self._grid, self._known = grid, dict(known)
        self._patience = _STUCK_OF_MODEL if kind in ("tpe", "gp") else _STUCK
        self._under_way: dict[int, list[Trial]] = {}  # point → the trials that wait for it
        optuna = load_optuna(kind)
        # A resumed search must not propose the known points again in the same order.
        self._random = random.Random(seed + len(known))
        self._distributions = distributions(grid)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", optuna.exceptions.ExperimentalWarning)
            self._study: Optuna = optuna.create_study(
                storage=_storage(journal),
                sampler=_sampler(kind, seed + len(known), max(4, min(24, (count or 500) // 6))),
                study_name="study",
                directions=["minimize"] * len(objectives(grid.space.shapes, grid.space.objectives)),
                load_if_exists=True,
            )
        trials = self._study.get_trials(deepcopy=False)
        if not trials:
            for index in first:
                self._enqueue(index)
        for trial in (t for t in trials if t.state.name == "RUNNING"):  # never answered: the process was killed
            if trial.params.keys() < self._distributions.keys():  # or not even asked in full
                self._study.tell(trial.number, state=optuna.trial.TrialState.FAIL)
                continue
            index, asked = grid.index(self._point(trial.params)), optuna.trial.Trial(self._study, trial._trial_id)
            if broken := grid.broken(index):
                self._answer(asked, Result(index, "static", broken))
            else:
                self._under_way.setdefault(index, []).append(asked)
        for index in self._known.keys() & self._under_way.keys():
            self.tell(self._known[index])
        self._again = list(self._under_way)

    def ask(self, count: int) -> list[int]:
        found, self._again = self._again[:count], self._again[count:]
        room = len(self._grid.feasible) - len(self._known) - len(self._under_way)
        stuck = 0
        while len(found) < count and room:
            if stuck and stuck % self._patience == 0:
                self._enqueue(self._unknown())
            trial = self._study.ask(self._distributions)
            index = self._grid.index(self._point(trial.params))
            stuck += 1
            if broken := self._grid.broken(index):
                self._answer(trial, Result(index, "static", broken))
            elif index in self._known:
                self._answer(trial, self._known[index])
            elif index in self._under_way:
                self._under_way[index].append(trial)
            else:
                self._under_way[index] = [trial]
                found.append(index)
                room -= 1
                stuck = 0
        return found

    def tell(self, result: Result) -> None:
        self._known[result.index] = result
        for trial in self._under_way.pop(result.index, []):
            self._answer(trial, result)

    def _point(self, places: Mapping[str, Any]) -> dict[str, int | str]:
        return {axis: values[places[axis]] for axis, values in self._grid.space.axes.items()}

    def _enqueue(self, index: int) -> None:
        point = self._grid.point(index)
        self._study.enqueue_trial({a: v.index(point[a]) for a, v in self._grid.space.axes.items()})

    def _unknown(self) -> int:
        return self._random.choice(
            [i for i in self._grid.feasible if i not in self._known and i not in self._under_way]
        )

    def _answer(self, trial: Trial, result: Result) -> None:
        """A rejected candidate counts as bad as the worst timed one, and as infeasible. A missed soft budget does not
        make a candidate infeasible."""
        wanted = objectives(self._grid.space.shapes, self._grid.space.objectives)
        timed = [v for r in self._known.values() if (v := values(r, wanted)) is not None]
        worst = [max(column) for column in zip(*timed, strict=True)] if timed else [1.0] * len(wanted)
        with warnings.catch_warnings():
            warnings.simplefilter(
                "ignore", UserWarning
            )  # that it is set already: the process was killed at that moment
            trial.set_constraint("measured", float(bool(result.fell)))
        self._study.tell(trial, values(result, wanted) or worst)


def distributions(grid: Grid) -> dict[str, Any]:
    """Each axis as Optuna knows it: by the place of a value among those allowed, in order where they are numbers."""
    optuna = load_optuna()
    return {
        axis: optuna.distributions.IntDistribution(0, len(values) - 1)
        if all(isinstance(v, int) for v in values)
        else optuna.distributions.CategoricalDistribution(list(range(len(values))))
        for axis, values in grid.space.axes.items()
    }


def objectives(shapes: Sequence[str], names: Sequence[str]) -> list[str]:
    """What is to be small, with the time of each shape on its own: ``time:mission``."""
    return [own for name in names for own in ([f"time:{s}" for s in shapes] if name == "time" else [name])]


def values(result: Result, wanted: Sequence[str]) -> list[float] | None:
    """A timed candidate's objectives, times as logarithms of us; ``None`` if one of them is not known."""
    found = plain_values(result, wanted)
    return found and [math.log(v) if n.startswith("time:") else v for n, v in zip(wanted, found, strict=True)]


def plain_values(result: Result, wanted: Sequence[str]) -> list[float] | None:
    """A timed candidate's objectives, times in us; ``None`` if one of them is not known."""
    if result.fell:
        return None
    found = [
        result.times.get(name[5:]) if name.startswith("time:") else
        result.error if name == "error" else result.facts.get(name)
        for name in wanted
    ]  # fmt: skip
    known = [v for v in found if v is not None]
    return known if len(known) == len(wanted) else None


def _sampler(kind: str, seed: int, room: int) -> Any:
    optuna = load_optuna()
    if kind == "random":
        return optuna.samplers.RandomSampler(seed=seed)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", optuna.exceptions.ExperimentalWarning)
        if kind == "tpe":
            return optuna.samplers.TPESampler(seed=seed, multivariate=True, n_startup_trials=room)
        if kind == "gp":
            return optuna.samplers.GPSampler(seed=seed, deterministic_objective=True, n_startup_trials=room)
    return optuna.samplers.NSGAIISampler(seed=seed, population_size=room)


def _storage(journal: Path | None) -> Any:
    """Optuna's journal. Only this process uses the study, so a lock that was left behind has no owner."""
    if journal is None:
        return None
    from optuna.storages import JournalStorage
    from optuna.storages.journal import JournalFileBackend, JournalFileOpenLock

    for left in journal.parent.glob(f"{journal.name}.lock*"):
        left.unlink(missing_ok=True)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # that such a short wait could break a lock that is held
        lock = JournalFileOpenLock(str(journal), grace_period=1)
    return JournalStorage(JournalFileBackend(str(journal), lock))


def load_optuna(kind: str = "") -> Any:
    """Optuna, quiet, with what one of its samplers needs.

    Raises:
        CapabilityError: it is not installed.
    """
    try:
        import optuna
    except ModuleNotFoundError as error:
        raise CapabilityError(
            "every sampler but grid needs the Python package optuna, found none",
            "pip install 'flashcore-harness[tune]', or --sampler grid",
        ) from error
    for name in ("scipy", "torch") if kind == "gp" else ():
        if importlib.util.find_spec(name) is None:
            mend = f"pip install {name}, or --sampler nsga2"
            raise CapabilityError(f"the sampler gp needs the Python package {name}, found none", mend)
    optuna.logging.set_verbosity(optuna.logging.ERROR)
    return optuna
