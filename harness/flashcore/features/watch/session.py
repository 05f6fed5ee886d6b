"""Builds, checks, times and profiles what a save changed, in processes that stay open from save to save."""

from __future__ import annotations

import contextlib
import itertools
import math
import tempfile
import time
from collections import defaultdict
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Self

from flashcore.errors import CapabilityError
from flashcore.explain.answer import Answers, Role, beside
from flashcore.explain.readings import Readings
from flashcore.explain.verdict import Verdicts
from flashcore.features.watch import answers, child
from flashcore.features.watch.answers import Content, Question
from flashcore.model.case import Case
from flashcore.model.progress import Say
from flashcore.model.record import CaseOutcome, CaseSubject, Fact, Measured, Record, StageNote, StageResult
from flashcore.model.settings import Settings
from flashcore.model.suite import Stage, Variant
from flashcore.pipeline import revision
from flashcore.pipeline.judging import Rules, judge_record
from flashcore.pipeline.make_record import joined
from flashcore.pipeline.opening import open_recordable
from flashcore.records import store
from flashcore.runner.kernel_call import KernelCall
from flashcore.stages.bench import bench
from flashcore.stages.check import check
from flashcore.stages.compiling import compile_all
from flashcore.stages.context import Context
from flashcore.stages.formulas import formula_facts
from flashcore.stages.profile import cupti, profile
from flashcore.stages.runnable_cases import child_cases, sort_out
from flashcore.suites.load import folders

#: Seconds that a task in progress may take after a newer save; then its process is ended.
_GRACE = 1.0
#: Saves after which processes are replaced: each build stays loaded, about 1.5 MB of it in memory (H200).
_RENEWED = 50
#: Seconds for a single kernel call, after which it counts as hung.
TIME_LIMIT = 10.0


class Obsolete(Exception):
    """A newer save makes this one's answers useless."""


@dataclass(frozen=True, slots=True, eq=False)
class Save:
    """A save: its number, its time (monotonic), and the files that changed; none: everything is answered again.
    ``longer``: timed with ten times as many samples."""

    number: int
    time: float
    files: Collection[Path] = ()
    longer: bool = False


@dataclass
class Session:
    """The suite, its processes, and the builds so far. Used as a context, at whose end the processes are ended.

    Attributes:
        newest: the newest save, which another thread may set. Answers to an earlier one end; a task in progress is
            first given a second to end.
    """

    settings: Settings
    say: Say
    newest: Save = field(default_factory=lambda: Save(0, 0.0))
    _context: Context = field(init=False)
    _formulas: Sequence[Fact] = field(init=False)
    _is_outdated: bool = False  # the manifest or a problem changed since the context was made
    _read: set[Path] = field(default_factory=set)  # by problems
    _code: dict[str, object] = field(default_factory=dict)  # variant → its build that was answered
    #: The builds that a variant's next one on a shape is timed beside.
    _builds: dict[tuple[str, str], dict[Role, KernelCall]] = field(default_factory=lambda: defaultdict(dict))
    _references: dict[str, list[KernelCall]] = field(default_factory=dict)  # of each shape: all, later the fastest
    _needs_ncu: bool = False  # CUPTI cannot measure the counters here

    def __post_init__(self) -> None:
        self._save = self.newest
        self._temporary = tempfile.TemporaryDirectory(prefix="flashcore-watch-")
        self._folders = (Path(self._temporary.name, str(n)) for n in itertools.count())
        try:
            self._load()
        except BaseException:  # nobody will close this session
            self._temporary.cleanup()
            raise

    def _load(self) -> None:
        """Reads the manifest and the problems anew; processes that had imported them are ended."""
        opened = open_recordable(self.settings)
        supported = {arch for v in opened.variants for arch in v.where.archs}
        preferred = opened.gpu_arch, opened.suite.usual_arch, *reversed(opened.archs)
        arch = next(a for a in preferred if a in supported)
        settings = replace(opened.settings, check=replace(opened.settings.check, children=1), roofs=None)
        if hasattr(self, "_context"):
            self.release()
        self._context = replace(
            opened,
            settings=settings.with_time_limit(TIME_LIMIT),
            suite=replace(opened.suite, archs=(arch,), shapes={s.name: s for s in opened.shapes}),
            options=replace(opened.options, archs=(arch,)),
            variants=tuple(v for v in opened.variants if v.is_reference or v.name not in opened.references),
            resident=child.TARGET,
            say=self._say,
        )
        self._formulas = formula_facts(self._context)
        self._context.workers.stays = True
        self._context.workers.stop = self._stop
        for kept in (self._code, self._builds, self._references):  # of other problems
            kept.clear()
        self._is_outdated = False
        self._prepare(self._context)

    @property
    def paths(self) -> list[Path]:
        """The folders to watch: those of the suite's files."""
        return [f for f in folders(self._context.suite) if f.is_dir()]

    def release(self) -> None:
        """Ends the processes, whose CUDA contexts would void the times of another command; the next save starts them
        again."""
        self._context.workers.close()

    def _stop(self) -> None:
        if self.newest is not self._save and time.monotonic() > self.newest.time + _GRACE:
            raise Obsolete

    def _say(self, text: str) -> None:
        self._require_newest()
        self.say(text)

    def _require_newest(self) -> None:
        if self.newest is not self._save:
            raise Obsolete

    # --- answers ----------------------------------------------------------------------------------

    def answers(self, save: Save) -> Iterator[dict[str, Any]]:
        """The answers after a save, as they become known. Those that an earlier save did not get are among them.

        Raises:
            Obsolete: it is not the newest save.
            FlashcoreError: the manifest or a problem is wrong, or the machine lacks something.
        """
        self._save = save
        self._is_outdated |= any(f.suffix in (".py", ".toml") or f in self._read for f in save.files)
        if not save.files:
            self._code.clear()
        self._require_newest()
        if self._is_outdated:
            self._load()
        context = replace(self._context, built=compile_all(self._context, self._formulas))
        changed = []
        for variant in (v for v in context.variants if not v.is_reference):
            code = [(a.status, a.code, a.host, a.message) for a in context.built.artifacts if a.variant == variant.name]
            if self._code.get(variant.name) != code:
                changed.append((variant, code))
        for variant, code in changed:
            # Journals answer tasks by name: those of another build must not lie in the same folder.
            yield from self._of_variant(replace(context, folder=next(self._folders)), variant, save)
            self._code[variant.name] = code
        if not changed:
            self._say("the same machine code as before")
        if save.number % _RENEWED == 0:
            self.release()
            self._prepare(context)

    def _of_variant(self, context: Context, variant: Variant, save: Save) -> Iterator[dict[str, Any]]:
        def answer(question: Question, content: Content, shape: str | None = None) -> dict[str, Any]:
            self._require_newest()
            seconds = round(time.monotonic() - save.time, 3)
            subject = {"save": save.number, "variant": variant.name, "question": question, "shape": shape}
            return {**subject, "seconds": seconds, **content._asdict()}

        only = replace(context, variants=(variant,))
        context = replace(context, variants=(variant, *(v for v in context.variants if v.is_reference)))
        so_far = _answers(context, Measured(), variant)
        yield answer("budgets", answers.of_budgets(so_far.budgets(variant.name)))
        failed = any(a.variant == variant.name and a.status == "failed" for a in context.built.artifacts)
        if context.cannot_measure and not failed:
            for shape in [s for s in context.shapes if variant.runs_on(s)][:1]:
                yield answer("limits", answers.of_limits(so_far.of(Case(variant.name, shape.name))), shape.name)
        if context.cannot_measure or failed:
            return
        with context.workers.leased(self.say):
            cases, left_out = _cases(only, "check", ())
            checked = _of_build(check.run(context, cases), *cases)
            outcomes = [*left_out, *checked.outcomes]
            self._read |= {Path(context.suite.root, f).resolve() for files in checked.reads.values() for f in files}
            measured = Measured().plus(replace(checked, outcomes=tuple(outcomes)), StageNote("check", "ok", 0.0))
            known = Answers(Readings(_record(context, measured)), Verdicts(()))
            correct = known.correct(Case(variant.name, context.shapes[0].name))
            yield answer("right", answers.of_check(correct))
            if correct.wrong:
                return
            for case in _cases(only, "bench", outcomes)[0]:
                result, content = self._timed(context, variant, case, save.longer)
                measured = measured.plus(result, StageNote("bench", "ok", 0.0))
                yield answer("faster", content, case.shape)
            profiled, _ = sort_out(only, "profile", outcomes)
            if profiled:
                measured = measured.plus(self._profiled(only, profiled), StageNote("profile", "ok", 0.0))
        at_last = _answers(context, measured, variant)
        for case in profiled:
            yield answer("limits", answers.of_limits(at_last.of(case.case)), case.shape)
        yield answer("budgets", answers.of_budgets(at_last.budgets(variant.name)))

    def _timed(self, context: Context, variant: Variant, case: KernelCall, longer: bool) -> tuple[StageResult, Content]:
        """A case's times in turns with those of earlier builds, and of the fastest reference of its shape."""
        if case.shape not in self._references:
            shape = context.suite.shapes[case.shape]
            pairs = [(v, shape) for v in context.variants if v.is_reference and v.runs_on(shape)]
            self._references[case.shape] = child_cases(context, pairs)
        builds, references = self._builds[variant.name, case.shape], self._references[case.shape]
        names = {build.variant: role for role, build in builds.items() if build.variant != case.variant}
        mode, count = case.rank_by, 300 if longer else 30
        chosen = replace(
            context.settings.bench, modes=(mode,), samples=count // 3, max_samples=count, seconds=count / 60
        )
        context = replace(context, settings=replace(context.settings, bench=chosen))
        others = [*(builds[role] for role in names.values()), *references]
        result = bench.run(context, [case, *others])
        note = StageNote("bench", "ok", 0.0)
        record = _record(context, Measured().plus(_of_build(result, case), note).plus(result, note))
        earlier = {role: record.time(CaseSubject(Case(name, case.shape)), mode) for name, role in names.items()}
        own = Case(variant.name, case.shape)
        alone = Answers(Readings(record), Verdicts(())).time(own)
        answer = beside(alone, record.time(CaseSubject(own), mode), earlier)
        result = _of_build(result, case, *references)
        if answer.us is None:
            return result, answers.of_times(answer)
        times = [(record.time(CaseSubject(c.case), mode).us or math.inf, i) for i, c in enumerate(references)]
        self._references[case.shape] = [references[i] for us, i in sorted(times)[:1] if us < math.inf]
        best = builds.get("best save")
        ratio = answer.over.get(names.get(best.variant, "best save")) if best else None
        if best is None or (ratio and ratio.ends and ratio.ends[0] > 1):
            builds["best save"] = case
        builds["last save"] = case
        return result, answers.of_times(answer)

    def _profiled(self, context: Context, cases: Sequence[KernelCall]) -> StageResult:
        """The counters, by CUPTI in the process that has the GPU; if it cannot, by an ncu that waits in a folder."""
        try:
            if not self._needs_ncu:
                return cupti.run(context, cases, _of_builds(cases))
        except CapabilityError as error:
            self._needs_ncu = True
            self.say(f"counters: {error}")
            self._prepare(context)
        try:
            return profile.run(replace(context, folder=self._next), cases)
        except CapabilityError as error:
            self.say(f"profile: {error}")
            return StageResult()
        finally:
            self._prepare(replace(context, shapes=tuple(context.suite.shapes[c.shape] for c in cases)))

    def _prepare(self, context: Context) -> None:
        """Starts what the next answers need: the process that has the GPU, unless it waits, and one under ncu if that
        measures the counters."""
        self._next = next(self._folders)  # the process under ncu waits in it
        if not context.cannot_measure:
            with contextlib.suppress(CapabilityError):  # said by the next save
                check.prepare(replace(context, folder=self._next))
                if self._needs_ncu:
                    profile.prepare(replace(context, folder=self._next))

    def compare_with_commit(self) -> None:
        """Times the next saves beside the build of git's ``HEAD`` too.

        Raises:
            UsageError: there is no such suite in it.
            FlashcoreError: git cannot check it out.
        """
        context = self._context
        root = Path(context.suite.root).resolve()
        with revision.suite_at("HEAD", root) as folder:
            before = revision.counterpart(folder, context)
            before = replace(before, say=self._say, built=compile_all(before))
            for case in _cases(before, "bench", ())[0]:
                variant = case.variant.partition("@")[0]
                self._builds[variant, case.shape]["commit"] = replace(case, root=str(root))

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.release()
        self._temporary.cleanup()


def _record(context: Context, measured: Measured) -> Record:
    return joined(context, store.new_id(), measured, [])


def _answers(context: Context, measured: Measured, variant: Variant) -> Answers:
    """The answers about what was measured, with the judgement on one variant."""
    record = _record(context, measured)
    return Answers(Readings(record), judge_record(Rules(variants=(variant.name,)), record).judgement)


def _cases(context: Context, stage: Stage, before: Sequence[CaseOutcome]) -> tuple[list[KernelCall], list[CaseOutcome]]:
    """A stage's cases, named by their build, and the outcomes of those that are left out.

    A process loads a library once, and registers each library's operator under another name.
    """
    cases, left_out = sort_out(context, stage, before)
    return _of_builds(cases), left_out


def _of_builds(cases: Sequence[KernelCall]) -> list[KernelCall]:
    return [replace(c, variant=f"{c.variant}@{Path(c.library).parent.name[-16:]}") if c.library else c for c in cases]


def _of_build(result: StageResult, *cases: KernelCall) -> StageResult:
    """A result's part about one build's cases, under its variant's name."""
    names = {c.variant: c.variant.partition("@")[0] for c in cases}
    return replace(
        result,
        facts=tuple(
            replace(f, subject=replace(s, case=replace(s.case, variant=names[s.variant])))
            for f in result.facts
            if isinstance(s := f.subject, CaseSubject) and s.variant in names
        ),
        outcomes=tuple(replace(o, variant=names[o.variant]) for o in result.outcomes if o.variant in names),
        raw_samples={
            (replace(case, variant=names[case.variant]), mode): times
            for (case, mode), times in result.raw_samples.items()
            if case.variant in names
        },
    )
