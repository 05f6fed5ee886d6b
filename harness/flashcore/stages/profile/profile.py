"""Profile: runs one ``ncu`` process for many cases and assigns its results to cases by their NVTX ranges.

The run's folder contains ``round-N/``: journals, the children's logs, and each batch's ncu output, first as
``.ncu-rep``, then as compressed CSV. All state is in those files: a run that was interrupted at any moment, even by
kill -9, is completed by calling :func:`run` again with the same folder.

A case is profiled if its journal shows that it ran *and* ncu returned rows for its range. If it ran but its rows were
lost because ncu died, it runs again in the next round.
"""

from __future__ import annotations

import lzma
import re
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from functools import cache, partial
from pathlib import Path

from flashcore.errors import CapabilityError, FlashcoreError, RecordError, WriteError
from flashcore.machine import ncu, python_process, toolchain
from flashcore.machine.capabilities import reported_in
from flashcore.model import catalogue
from flashcore.model.case import Case
from flashcore.model.catalogue import PHASE_SHARE
from flashcore.model.cause import Cause
from flashcore.model.causes import MESSAGE, NO_ROWS, NOT_PROFILED, ROWS_MISSING, UNANSWERED, hangs
from flashcore.model.files import write_atomically, writing
from flashcore.model.progress import Say, silent
from flashcore.model.record import CaseOutcome, CaseSubject, Fact, Listing, StageResult, outcome_of
from flashcore.model.settings import Profile
from flashcore.readers import phases
from flashcore.readers.ncu import raw_page
from flashcore.readers.ncu import results as ncu_results
from flashcore.runner import rounds
from flashcore.runner.journal import Task, TaskResult
from flashcore.runner.kernel_call import KernelCall
from flashcore.runner.process import Program
from flashcore.runner.queue import Pool
from flashcore.runner.rounds import Settled
from flashcore.stages.always_measured import always_measured
from flashcore.stages.context import Context
from flashcore.stages.profile import child, code, ncu_facts
from flashcore.stages.profile.ncu_facts import CaseBuild

FEW = 32  # up to this many cases are all measured in depth
TARGET = python_process.child("flashcore.stages.profile.child")


class _Refused(Exception):
    """ncu refused metrics: request the rest."""


def required_chip(capability: tuple[int, int]) -> str:
    """ncu's name of the chip with this compute capability; for an unknown minor, the family's nearest older chip.

    Raises:
        CapabilityError: the catalogue has no metric names for that family.
    """
    chip = catalogue.chip_of(capability)
    if chip is None:
        raise CapabilityError(
            f"compute capability {capability[0]}.{capability[1]}: the catalogue has no metric names for this GPU",
            "add its chip and metric names to flashcore/model/facts.toml (ncu --query-metrics lists them)",
        )
    return chip


@dataclass(frozen=True, slots=True, kw_only=True)
class Profiling:
    """How to profile cases, and facts about their code.

    Args:
        ncu: path of Nsight Compute; see :func:`flashcore.machine.ncu.find_ncu`.
        chip: ncu's name of the chip (``gh100``), which determines the metric names.
        references: names of the variants that are profiled for comparison.
        builds: a case → its data from the build, without phases.
        codes: a variant → the phases of its code, if its sources mark any.
        required: case → facts that are measured of it whatever they cost.
        target: (task file, journal) → the command line of the process that runs the cases.
    """

    ncu: Path | str
    chip: str
    settings: Profile = field(default_factory=Profile)
    workers: Pool = field(default_factory=Pool)
    references: Collection[str] = ()
    builds: Callable[[Case], CaseBuild] = lambda _: CaseBuild()
    codes: Callable[[str], phases.Code | None] = lambda _: None
    required: Mapping[str, Collection[str]] = field(default_factory=dict)
    target: Callable[[Path, Path], list[str]] = TARGET
    progress: Say = silent


def prepare(context: Context) -> None:
    """Starts the first processes under ncu. Neither they nor ncu use a GPU before they have tasks.

    Raises:
        CapabilityError: no ncu, or no nvtx; :func:`run` reports it again.
    """
    tasks = [Task(f"{v.name}/{s.name}", {}) for v, s in context.cases("profile")]
    marked = dict.fromkeys(code.marked(context), phases.Code(()))
    start(tasks, context.folder / "profile", _profiling(context, marked.get))


def run(context: Context, cases: Sequence[KernelCall]) -> StageResult:
    """Profiles the cases; see :data:`flashcore.stages.gpu_stages.Run` and :func:`profiled`."""
    profiling = replace(
        _profiling(context, code.codes(context)),
        builds=code.builds(context),
        progress=context.progress("profile", len(cases)),
    )
    tasks = [case.task(context.device) for case in cases]
    with ThreadPoolExecutor(1) as thread:  # starting ncu takes time
        version = thread.submit(toolchain.tool_version, profiling.ncu)
        return replace(profiled(tasks, context.folder / "profile", profiling), ncu=version.result())


def _profiling(context: Context, codes: Callable[[str], phases.Code | None]) -> Profiling:
    assert context.gpu is not None
    gpu, cases, chosen = context.gpu.name, context.cases("profile"), context.settings.profile
    required = cache(partial(always_measured, context.suite, gpu))
    facts = {f"{v.name}/{shape.name}": required(shape.name)[v.name] for v, shape in cases}
    return Profiling(
        ncu=ncu.find_ncu(),
        chip=required_chip(context.gpu.capability),
        settings=replace(chosen, limits=context.limits(chosen.limits)),
        workers=context.workers,
        references={v.name for v in context.variants if v.is_reference},
        codes=codes,
        required=facts,
    )


def profiled(tasks: Sequence[Task], folder: Path, profiling: Profiling) -> StageResult:
    """Profiles the cases, or the remaining ones if ``folder`` contains an earlier attempt.

    Metrics of many passes and warp samples are measured of some cases only; see :func:`under_ncu`.

    Args:
        tasks: one for each case, named ``variant/shape``, with the payload for the target.

    Raises:
        CapabilityError: no GPU, no permission to read counters, no nvtx, or an unsuitable ncu.
        FlashcoreError: ``folder`` cannot be written; earlier results are kept.
    """
    child.prepare()
    stage = under_ncu(tasks, profiling)
    # References last: libraries keep workspaces, which ncu would save and restore around every later pass.
    ordered = sorted(tasks, key=lambda task: task.variant in profiling.references)
    with writing(folder):
        settled = rounds.settle(folder, ordered, stage.perform, stage.harvest)
    facts: list[Fact] = []
    outcomes: list[CaseOutcome] = []
    listings: list[Listing] = []
    for task in tasks:
        name, case = task.name, Case(task.variant, task.shape)
        cause = None if name in settled.reports else settled.cause(name)
        if cause:
            facts += ncu_facts.unmeasured(case, NOT_PROFILED(cause))
        else:
            phased = profiling.codes(task.variant) if name in stage.deep else None
            built = replace(profiling.builds(case), code=phased)
            rows, subject = built.named(settled.reports[name]), CaseSubject(case)
            facts += ncu_facts.facts_of(subject, rows, chip=profiling.chip, refused=stage.refused, built=built)
            if phased is not None:
                listings += ncu_facts.listings(subject, rows, phased)
        outcomes.append(outcome_of(case, "profile", cause, settled.seconds.get(name)))
    return StageResult(tuple(facts), tuple(outcomes), listings=tuple(listings))


def start(tasks: Sequence[Task], folder: Path, profiling: Profiling) -> None:
    """Starts the processes under ncu for the first tasks of :func:`profiled`.

    Args:
        tasks: only their names are used; of ``profiling.codes``, only whether there are any.

    Raises:
        CapabilityError: no nvtx.
    """
    child.prepare()
    stage = under_ncu(tasks, profiling)
    for metrics, _ in stage.groups(tasks):
        profiling.workers.prepare(stage.program(metrics), rounds.following(folder))


def under_ncu(tasks: Sequence[Task], profiling: Profiling) -> UnderNcu:
    """How the cases are measured. In depth, warps are sampled, and metrics of many passes measured. Of more than
    :data:`FEW`, that is the first case of each variant that is no reference, and cases with a budget or a prediction on
    such a fact."""
    if len(tasks) <= FEW:
        return UnderNcu(profiling, {task.name for task in tasks}, many=False)
    first = {task.variant: task.name for task in reversed(tasks) if task.variant not in profiling.references}
    required = {
        name
        for name, facts in profiling.required.items()
        if any(f in ncu_facts.COSTLY or f.startswith(PHASE_SHARE) for f in facts)
    }
    return UnderNcu(profiling, {*first.values(), *required}, many=True)


Rows = list[ncu_results.Result]


@dataclass(frozen=True, slots=True)
class UnderNcu:
    """Runs cases under ncu."""

    profiling: Profiling
    deep: set[str]
    many: bool
    refused: dict[str, str] = field(default_factory=dict)  # metric → ncu's message; grows with the rounds

    def groups(self, tasks: Sequence[Task]) -> Iterator[tuple[list[str], list[Task]]]:
        """Metrics to request, and the cases to request them of, in ncu processes of their own. Those in depth are
        first: the stage waits until the last group's report is imported, which takes longer with samples."""
        for deep in (True, False):
            if group := [task for task in tasks if (task.name in self.deep) == deep]:
                yield self.metrics(deep), group

    def metrics(self, deep: bool) -> list[str]:
        """The metrics to request from ncu."""
        rare = ncu_facts.RARE if self.many else ncu_facts.INFERRED
        without = rare.difference(*self.profiling.required.values()) if deep else ncu_facts.COSTLY
        sampled = deep and any(self.profiling.codes(name.split("/")[0]) for name in self.deep)
        return ncu_facts.metrics_to_request(self.profiling.chip, self.refused, sampled=sampled, without=without)

    def perform(self, path: Path, tasks: list[Task], settled: Settled[Rows]) -> None:
        """Runs the tasks in batches, one ncu process each, until ncu refuses metrics.

        Raises:
            CapabilityError: ncu reports that this machine lacks something, so that more rounds cannot succeed.
        """
        try:
            # While cases are profiled, their code is read, and the reports of earlier groups are imported.
            with ThreadPoolExecutor(1) as imports:
                imports.submit(lambda: [self.profiling.codes(task.variant) for task in tasks if task.name in self.deep])
                for metrics, group in self.groups(tasks):
                    self._batches(path, group, metrics)
                    imports.submit(self._tables, path, _reports(path))  # those of the next group are not complete
        except _Refused:
            return
        if missing := reported_in(_logs(path)):
            raise missing

    def program(self, metrics: list[str]) -> Program:
        """ncu and the process it profiles."""
        settings = self.profiling.settings
        # Only files that the command names are sent to another host.
        tool, target = self.profiling.ncu, self.profiling.target

        def command(task_file: Path, journal: Path) -> list[str]:
            report = journal.with_name(f"{journal.stem.replace('journal', 'report')}.ncu-rep")
            work = target(task_file, journal)
            return ncu.command_line(tool, report, metrics, work, clock_control=settings.clock_control)

        return Program(command=command, limits=settings.limits, at_once=True)

    def _batches(self, path: Path, tasks: list[Task], metrics: list[str]) -> None:
        def tell(result: TaskResult) -> None:
            if result.status == "failed":
                log = _logs(path)
                if missing := reported_in(log):
                    raise missing
                if ncu.refused_metrics(log, metrics):
                    raise _Refused
            self.profiling.progress(rounds.progress_line(result))

        self.profiling.workers.run(tasks, self.program(metrics), path, tell)

    def harvest(self, path: Path, answers: Mapping[str, TaskResult], settled: Settled[Rows]) -> None:
        """Assigns to each case the rows of its range."""
        log = _logs(path)
        refused = ncu.refused_metrics(log, [*self.metrics(True), *self.metrics(False)])
        self.refused.update(refused)
        settled.more_rounds = len(self.refused)  # each refusal costs a round
        # If ncu itself failed, a case's failure is not the case's fault.
        excused = bool(refused) or reported_in(log) is not None
        torn = any(result.status != "ok" for result in answers.values())  # ncu was killed while it wrote
        rows, unreadable, incomplete = self._tables(path, _reports(path))
        for name, result in answers.items():
            if result.status != "ok":
                if not excused or hangs(result.cause):
                    settled.failed[name] = result.cause or UNANSWERED()
                    settled.seconds[name] = result.seconds
            elif name in rows and name not in incomplete:
                settled.reports[name] = rows[name]
                settled.seconds[name] = result.seconds
            elif unreadable and name not in incomplete and not torn:
                settled.failed[name] = unreadable
            else:
                settled.open[name] = incomplete.get(name) or unreadable or NO_ROWS(ncu.last_lines(log))

    def _tables(self, path: Path, stems: Sequence[str]) -> tuple[dict[str, Rows], Cause | None, dict[str, Cause]]:
        """Case → its rows in these reports; why one cannot be read (``None`` if all can); and case → why its rows may
        be incomplete. A later report replaces an earlier one's rows."""
        rows: dict[str, Rows] = {}
        incomplete: dict[str, Cause] = {}
        unreadable: Cause | None = None
        for stem in stems:
            try:
                table = self._table(path / f"{stem}.ncu-rep", path / f"{stem}.csv.xz")
            except (WriteError, CapabilityError):
                raise
            except FlashcoreError as error:
                unreadable = MESSAGE(str(error))
                continue
            for name, launches in table.by_range().items():
                rows[name] = launches
                incomplete.pop(name, None)
                if name in table.suspects:
                    incomplete[name] = ROWS_MISSING(table.notes)
        return rows, unreadable, incomplete

    def _table(self, report: Path, saved: Path) -> raw_page.RawTable:
        """A batch's table: from the saved CSV if that is complete, else from ncu's report."""
        if saved.exists():
            try:
                table = raw_page.parse(lzma.decompress(saved.read_bytes()).decode())
            except (OSError, EOFError, lzma.LZMAError, UnicodeDecodeError, raw_page.LayoutError) as error:
                if not report.exists():
                    raise RecordError(
                        f"{saved}: expected ncu's CSV, xz-compressed, found: {error}; delete it and resume"
                    ) from None
            else:
                if not table.notes or not report.exists():
                    return table
        text = ncu.raw_page_of(self.profiling.ncu, report)
        write_atomically(saved, lzma.compress(text.encode(), preset=2))  # 6 takes ten times as long to save a fifth
        table = raw_page.parse(text)
        if not self.profiling.settings.keep_report and not table.notes:
            report.unlink()
        return table


def _reports(path: Path) -> list[str]:
    """The names of a round's reports, without endings, in order."""
    stems = {f.name.split(".")[0] for f in (*path.glob("*.ncu-rep"), *path.glob("*.csv.xz"))}
    return sorted(stems, key=lambda s: [int(n) for n in re.findall(r"\d+", s)])


def _logs(path: Path) -> str:
    """The output of a round's children."""
    return "\n".join(log.read_text(errors="replace") for log in sorted(path.glob("*.log")))
