"""The search: Optuna proposes points, the static facts reject some, and the others are measured.

A study is a file of Optuna's journal storage: ``optuna-dashboard`` shows it, and an interrupted search continues from
it. Each trial stands for a point; its parameters are the places on the axes, its values the times at the shapes (us),
its user attributes the config and the :class:`Outcome`. A rejected candidate is a pruned trial and has no value.
"""

from __future__ import annotations

import dataclasses
import math
import random
import time
import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Literal, NamedTuple, Protocol

import optuna
from optuna.storages import JournalStorage
from optuna.storages.journal import JournalFileBackend
from optuna.trial import Trial, TrialState
from pydantic import TypeAdapter

from flashcore.errors import UsageError
from flashcore.model.progress import Say
from flashcore.records.store import claimed
from flashcore_tune.space import Grid

optuna.logging.set_verbosity(optuna.logging.ERROR)
warnings.filterwarnings("ignore", category=optuna.exceptions.ExperimentalWarning)

SAMPLERS = ("nsga2", "tpe", "gp", "random", "grid")
#: A space with more feasible points is searched with NSGA-II, a smaller one with TPE.
BIG = 500
#: After this many proposals in a row with known outcomes, an unknown point is drawn. A model is slow to ask and repeats
#: itself.
_PATIENCE = {"tpe": 3, "gp": 3}
_JOURNAL = "journal.log"
#: The steps that may reject a candidate, empty for none, and those that need no GPU.
Step = Literal["", "build", "static", "check", "bench"]
STATIC = ("build", "static")


@dataclasses.dataclass(frozen=True)
class Outcome:
    """What became of a candidate.

    Args:
        rejected: the step that rejected it, empty if none did, and the ``reason``.
        times: shape → median in us, in the timing mode that ranks there; empty without a GPU.
        facts: static facts, the worst over its kernels.
        missed: the soft budgets that it misses.
        code: the same for candidates of the same machine code and launches.
    """

    rejected: Step = ""
    reason: str = ""
    times: Mapping[str, float] = dataclasses.field(default_factory=dict)
    facts: Mapping[str, float] = dataclasses.field(default_factory=dict)
    missed: tuple[str, ...] = ()
    code: str = ""


class Evaluator(Protocol):
    """Builds and measures points of a space, by their numbers."""

    def gate(self, points: Sequence[int]) -> Mapping[int, Outcome]:
        """The outcomes by the static facts: candidates that may be measured are not rejected."""
        ...

    def measure(self, passed: Mapping[int, Outcome]) -> Mapping[int, Outcome]:
        """The outcomes of candidates that the gate let pass."""
        ...


class Budget(NamedTuple):
    """When a search ends: after so many candidates that the gate let pass, or seconds of this search."""

    evaluations: float = math.inf
    seconds: float = math.inf


class Search:
    """A study in progress.

    Args:
        study: its trials so far are known outcomes.
        sampler: one of :data:`SAMPLERS`.
        count: evaluations in total, which determine the population or the number of random points at the start.
        first: points to begin a new study with.
    """

    def __init__(
        self,
        study: optuna.Study,
        grid: Grid,
        sampler: str,
        seed: int = 0,
        count: float = math.inf,
        first: Sequence[int] = (),
    ) -> None:
        self.grid, self.study, self._kind = grid, study, sampler
        for trial in study.get_trials(deepcopy=False, states=(TrialState.RUNNING,)):
            study.tell(trial.number, state=TrialState.FAIL)  # the search was interrupted
        self.outcomes = outcomes(study)
        trials = len(study.get_trials(deepcopy=False))
        seed += trials  # a resumed search must not propose the same points again
        self._random = random.Random(seed)
        self._size = max(4, int(min(24, count / 6)))
        study.sampler = self._sampler(seed)
        self._waiting: dict[int, list[Trial]] = {}  # point → the trials that wait for its outcome
        self._distributions: dict[str, optuna.distributions.BaseDistribution] = {
            axis: optuna.distributions.IntDistribution(0, len(values) - 1)
            if all(isinstance(v, int) for v in values)
            else optuna.distributions.CategoricalDistribution([*range(len(values))])
            for axis, values in grid.space.axes.items()
        }
        for index in () if trials else first:
            study.enqueue_trial(grid.places(index))

    @property
    def evaluations(self) -> int:
        """The number of candidates that the static facts did not reject."""
        return sum(outcome.rejected not in STATIC for outcome in self.outcomes.values())

    def run(self, evaluator: Evaluator, budget: Budget, batch: int, say: Say) -> None:
        """Searches until the budget is spent or every point is known.

        Args:
            batch: points that are built and measured together; the sampler learns nothing meanwhile.
        """
        until = time.monotonic() + budget.seconds
        while (room := budget.evaluations - self.evaluations) > 0 and time.monotonic() < until:
            points = self._ask(int(min(batch, room)))
            if not points:
                break
            gated = evaluator.gate(points)
            for index, outcome in gated.items():
                if outcome.rejected:
                    self._tell(index, outcome, say)
            passed = {index: outcome for index, outcome in gated.items() if not outcome.rejected}
            for index, outcome in (evaluator.measure(passed) if passed else {}).items():
                self._tell(index, outcome, say)

    def _sampler(self, seed: int) -> optuna.samplers.BaseSampler:
        samplers, size = optuna.samplers, self._size
        match self._kind:
            case "tpe":
                return samplers.TPESampler(seed=seed, multivariate=True, n_startup_trials=size)
            case "gp":
                return samplers.GPSampler(seed=seed, deterministic_objective=True, n_startup_trials=size)
            case "nsga2":
                return samplers.NSGAIISampler(seed=seed, population_size=size)
        return samplers.RandomSampler(seed=seed)

    def _ask(self, count: int) -> list[int]:
        """Up to ``count`` points without an outcome that meet the conditions. Others that the sampler proposes are
        answered here, and cost nothing."""
        axes, points, repeated = self.grid.space.axes, list[int](), 0
        patience = _PATIENCE.get(self._kind, 30)
        while len(points) < count and (unknown := self._unknown(points)):
            if self._kind == "grid":
                self.study.enqueue_trial(self.grid.places(unknown[0]))
            elif repeated and repeated % patience == 0:
                self.study.enqueue_trial(self.grid.places(self._random.choice(unknown)))
            trial = self.study.ask(self._distributions)
            index = self.grid.index({axis: values[trial.params[axis]] for axis, values in axes.items()})
            repeated += 1
            if self.grid.broken(index):
                self.study.tell(trial, state=TrialState.PRUNED)
            elif outcome := self.outcomes.get(index):
                self._answer(trial, outcome)
            else:
                if index not in self._waiting:
                    points.append(index)
                    repeated = 0
                self._waiting.setdefault(index, []).append(trial)
        return points

    def _unknown(self, points: Sequence[int]) -> list[int]:
        return [i for i in self.grid.feasible if i not in self.outcomes and i not in points]

    def _tell(self, index: int, outcome: Outcome, say: Say) -> None:
        self.outcomes[index] = outcome
        first, *others = self._waiting.pop(index)
        attributes = {**dataclasses.asdict(outcome), "point": index, **self.grid.point(index)}
        for name, value in attributes.items():
            first.set_user_attr(name, value)
        for trial in (first, *others):
            self._answer(trial, outcome)
        shape = self.grid.space.shapes[0]
        result = f"{outcome.times[shape]:.4g} µs" if outcome.times else "passes the gate"
        if outcome.rejected:
            result = f"{outcome.rejected}: {outcome.reason}"
        say(f"tune {len(self.outcomes)}: point {index} ({self.grid.text(index)}) {result}")

    def _answer(self, trial: Trial, outcome: Outcome) -> None:
        if outcome.times and not outcome.rejected:
            self.study.tell(trial, [outcome.times[shape] for shape in self.grid.space.shapes])
        else:
            self.study.tell(trial, state=TrialState.PRUNED)


def ranked(outcomes: Mapping[int, Outcome], shape: str) -> list[int]:
    """The points that were timed and not rejected, the fastest at the shape first."""
    timed = [i for i, outcome in outcomes.items() if shape in outcome.times and not outcome.rejected]
    return sorted(timed, key=lambda i: outcomes[i].times[shape])


# --- studies on disk ---------------------------------------------------------------------------------


@contextmanager
def opened(folder: Path, header: Mapping[str, Any], resume: bool) -> Iterator[optuna.Study]:
    """The study in a folder, locked while it is open.

    Args:
        header: what a resumed search must share with the study, as JSON has it: suite, space, sources, GPU, compiler.

    Raises:
        UsageError: the study to resume is of something else, or another process has it open.
    """
    folder.mkdir(parents=True, exist_ok=True)
    with claimed(folder):
        (folder / f"{_JOURNAL}.lock").unlink(missing_ok=True)  # a killed search's, which Optuna would wait for
        if not resume:
            study = optuna.create_study(
                study_name=folder.name,
                storage=_storage(folder),
                directions=["minimize"] * len(header["space"]["shapes"]),
            )
            for name, value in header.items():
                study.set_user_attr(name, value)
        else:
            study = load(folder)
        for name, now in header.items():
            if (before := study.user_attrs.get(name)) != now:
                raise UsageError(
                    f"--resume: {folder}: expected the same {name} as now ({now}), found {before}\n"
                    "  hint: leave --resume out, to begin another study"
                )
        yield study


def load(folder: Path | str) -> optuna.Study:
    """Reads a study by its folder.

    Raises:
        UsageError: there is none.
    """
    if not (Path(folder) / _JOURNAL).is_file():
        raise UsageError(f"{folder}: expected the folder of a study, found no {_JOURNAL} in it")
    return optuna.load_study(study_name=None, storage=_storage(Path(folder)))


def newest(studies: Path, space: str) -> Path:
    """The folder of a space's newest study.

    Raises:
        UsageError: there is none.
    """
    folders = sorted(p.parent for p in studies.glob(f"{space}-[0-9]*/{_JOURNAL}"))
    if not folders:
        raise UsageError(f"--resume: expected a study of {space} in {studies}, found none")
    return folders[-1]


def outcomes(study: optuna.Study) -> dict[int, Outcome]:
    """Point → outcome of a study's candidates."""
    of = TypeAdapter(Outcome).validate_python
    names = [field.name for field in dataclasses.fields(Outcome)]
    finished = study.get_trials(deepcopy=False, states=(TrialState.COMPLETE, TrialState.PRUNED))
    return {
        t.user_attrs["point"]: of({name: t.user_attrs[name] for name in names})
        for t in finished
        if "point" in t.user_attrs
    }


def _storage(folder: Path) -> JournalStorage:
    return JournalStorage(JournalFileBackend(str(folder / _JOURNAL)))
