"""Times two builds, and the first one a second time, alternately in several processes.

The layout of code and memory differs between processes, and rounds within one process do not average it out: each
repetition is a process of :mod:`flashcore.stages.bench.child`. It loads every case's three builds and times them
alternately, round by round. The order of loading, of the builds and of the cases changes from process to process. The
journal names a build that fails; its case is then left out, and the others continue.
"""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any, Literal, NamedTuple

from flashcore.model.cause import cause_text
from flashcore.model.files import make_folder, text_hash, write_atomically
from flashcore.model.groups import grouped
from flashcore.model.settings import Limits
from flashcore.model.slower import ProcessTimes
from flashcore.runner.journal import Task, TaskResult
from flashcore.runner.kernel_call import KernelCall, Operator
from flashcore.runner.process import Program
from flashcore.stages.bench import bench
from flashcore.stages.bench.message import ShapeTimes
from flashcore.stages.bench.statistics import StopRule
from flashcore.stages.bench.timing import rotated
from flashcore.stages.context import Context

BuildSide = Literal["before", "after", "again"]
SIDES: tuple[BuildSide, ...] = ("before", "after", "again")
#: Calls of many ms get fewer rounds: the seconds for each build, and the least number of rounds.
_SLOW_SECONDS, _FEWEST_ROUNDS = 1.0, 10


class Contest(NamedTuple):
    """A case as two builds, and the first of them again, in a separate library. All get the inputs of ``after``'s
    problem."""

    name: str
    before: KernelCall
    after: KernelCall
    again: KernelCall

    def label(self, side: BuildSide) -> str:
        """One of the three builds, in the messages of the process that times it."""
        return f"{self.name}@{side}"

    @classmethod
    def of(cls, name: str, before: KernelCall, after: KernelCall, folder: Path) -> Contest:
        """The contest of two builds, with a copy of the first one's library in ``folder``: a library is loaded only
        once, under any name."""
        again = copied(before, folder / "again")
        sides = zip(SIDES, (before, after, again), strict=True)
        return cls(name, *(replace(case, variant=f"{case.variant}@{side}") for side, case in sides))


def copied(case: KernelCall, folder: Path) -> KernelCall:
    """A case with a copy of its library under another name, so that its code has another address when both are
    loaded."""
    if not (isinstance(case.target, Operator) and case.library):
        return case
    copy = folder / f"{text_hash(case.library)[:16]}.so"
    if not copy.is_file():
        make_folder(copy.parent)
        write_atomically(copy, Path(case.library).read_bytes())
    return replace(case, target=replace(case.target, library=str(copy.resolve())))


class Times(NamedTuple):
    """One contest's times in one process: us per call, sample i of each from round i."""

    before: tuple[float, ...]
    after: tuple[float, ...]
    again: tuple[float, ...]


class LostContest(NamedTuple):
    """The reason why a contest was not timed to its end. ``side`` is the build that failed; empty: none of them."""

    side: str
    reason: str


@dataclass(slots=True)
class Timings:
    """The outcome of the contests: their times, one from each process, or why there are none.

    ``throttle`` holds the driver's reasons for a lowered clock meanwhile.
    """

    times: dict[str, list[Times]] = field(default_factory=dict)
    lost: dict[str, LostContest] = field(default_factory=dict)
    throttle: set[str] = field(default_factory=set)

    @property
    def processes(self) -> dict[str, list[ProcessTimes]]:
        """The data of :func:`flashcore.model.slower.decide`."""
        return {name: [ProcessTimes.of(*t) for t in times] for name, times in self.times.items()}

    def levels(self, name: str) -> tuple[float, float]:
        """The times before and after (us): geometric means over processes of each process's median, as changes are
        averaged."""
        times = self.times[name]
        before = statistics.geometric_mean(statistics.median(t.before + t.again) for t in times)
        return before, statistics.geometric_mean(statistics.median(t.after) for t in times)


# --- the stage ----------------------------------------------------------------------------------

_PROGRAM = Program(command=bench.TARGET)


def prepare(context: Context, processes: int, begin: int = 0) -> None:
    """Starts the processes of :func:`run` ahead, from number ``begin`` on, unless an earlier attempt got there."""
    if not (folder := _folder(context, begin)).is_dir():
        context.workers.prepare(_PROGRAM, folder, runs=processes - begin)


def run(context: Context, contests: Sequence[Contest], processes: int) -> Timings:
    """Times every contest in ``processes`` child processes, in the folder ``turns`` of the context; resumable there.

    Each process takes the samples of the bench settings of each build; calls of many ms get fewer. Setting up a
    build, and a sample, have check's time limit, which the user gives.

    Raises:
        CapabilityError: there is no GPU.
        FlashcoreError: a journal cannot be written.
    """
    rounds, time_limit = context.settings.bench.samples, context.settings.check.limits.time_limit
    timings = Timings(times={c.name: [] for c in contests})
    program = replace(_PROGRAM, limits=Limits(time_limit=time_limit, batch=len(contests)))
    for process in range(processes):
        if len(timings.lost) == len(contests):
            break
        folder = _folder(context, process)
        prepare(context, processes, process)
        done = {*timings.lost}
        # After a build crashed the process, its shape is timed again without that build.
        for left in bench.attempts(grouped((c.after.shape, c) for c in contests), lambda c: c.name, done):
            tasks = [Task(name, _payload(context.device, here, process, rounds)) for name, here in left.items()]
            for result in context.workers.run(tasks, program, folder):
                here = left[result.name]
                if result.data is None:
                    _blame(result, here, timings)
                    done.update(timings.lost)
                else:
                    _settle(ShapeTimes.from_json(result.data), here, timings)
                    done.update(contest.name for contest in here)
        context.say(f"against: process {process + 1} of {processes}")
    for name in timings.lost:
        timings.times.pop(name, None)
    return timings


def _folder(context: Context, process: int) -> Path:
    return context.folder / "turns" / f"{process:03d}"


def _settle(shape: ShapeTimes, contests: Sequence[Contest], timings: Timings) -> None:
    """Adds the times of a shape's contests, or why they have none."""
    for contest in contests:
        sides = {side: contest.label(side) for side in SIDES}
        failed = next((side for side, label in sides.items() if label in shape.failed), None)
        if failed:
            timings.lost.setdefault(contest.name, LostContest(failed, cause_text(shape.failed[sides[failed]])))
        else:
            samples = [shape.variants[label].samples[contest.after.rank_by] for label in sides.values()]
            timings.times[contest.name].append(Times(*(tuple(x[: min(map(len, samples))]) for x in samples)))
    timings.throttle.update(shape.state.get("throttle", ()))


def _blame(result: TaskResult, contests: Sequence[Contest], timings: Timings) -> None:
    """Removes the contest that was in progress when the process failed; if none had begun, all of them."""
    name, _, side = result.step.variant.rpartition("@")
    for contest in [c for c in contests if c.name == name] or contests:
        timings.lost[contest.name] = LostContest(side if contest.name == name else "", result.reason)


def order(process: int) -> list[BuildSide]:
    """The order of the three builds in a process: in three processes each of them is once in each place, and the next
    three use the reverse orders."""
    return rotated(SIDES if process // 3 % 2 == 0 else SIDES[::-1], process)


def _payload(device: str, contests: Sequence[Contest], process: int, rounds: int) -> dict[str, Any]:
    """The payload of the task that times the contests of one shape; see :mod:`flashcore.stages.bench.child`."""
    builds = [(c, side) for c in rotated(list(contests), process) for side in order(process)]
    fewest = min(_FEWEST_ROUNDS, rounds)
    return {
        "cases": [getattr(contest, side).to_json() for contest, side in builds],
        "labels": [contest.label(side) for contest, side in builds],
        "lead": builds.index((contests[0], "after")),
        "together": len(SIDES),
        "only_samples": True,
        "device": device,
        "modes": [contests[0].after.rank_by],
        "rule": asdict(StopRule(rounds, rounds, slow_seconds=_SLOW_SECONDS, fewest=fewest)),
        "race": {},
    }
