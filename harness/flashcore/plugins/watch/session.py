"""Builds, checks, times and profiles what a save changed, in processes that stay open from save to save."""

from __future__ import annotations

import contextlib
import tempfile
import time
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Self

from flashcore.errors import CapabilityError, UsageError
from flashcore.explain.advice import advice
from flashcore.gate import judge
from flashcore.measure.bench import case_times
from flashcore.measure.cases import child_cases, sort_out
from flashcore.measure.check import check
from flashcore.measure.compiling import compile_all
from flashcore.measure.context import Context, Say
from flashcore.measure.formulas import formula_facts
from flashcore.measure.profile import profile
from flashcore.measure.settings import Settings
from flashcore.measure.workers.kernel_call import Case
from flashcore.model.record import Fact, Measured, Record, StageNote, StageResult
from flashcore.model.suite import Cuda, Shape, Variant
from flashcore.pipeline.judging import Rules, baseline_of, today
from flashcore.pipeline.opening import open_recordable
from flashcore.pipeline.recording import Outcome, joined
from flashcore.plugins.watch import answers, child
from flashcore.plugins.watch.answers import Answer, Content, Question
from flashcore.records import store

#: Seconds that a task in progress may take after a newer save; then its process is ended.
_GRACE = 1.0
#: Saves after which processes are replaced: each build stays loaded, about 1.5 MB of it in memory (H200).
_RENEWED = 50
#: Seconds for a single kernel call, after which it counts as hung.
TIME_LIMIT = 10.0


class Obsolete(Exception):
    """A newer save makes this one's answers useless."""


@dataclass(frozen=True, slots=True)
class Save:
    """A save: its number, its time (monotonic), and the files that changed; none: all that is selected is answered.
    ``longer``: timed with ten times as many samples."""

    number: int
    time: float
    files: Collection[Path] = ()
    longer: bool = False


@dataclass(slots=True)
class _Rivals:
    """The builds and references that a case's next build is timed beside, each by its name for people."""

    last: Case | None = None
    best: Case | None = None
    committed: Case | None = None
    references: Sequence[Case] | None = None  # ``None``: not timed yet

    def named(self, case: Case) -> dict[str, Case]:
        """Those that are other code than the case's."""
        builds = {"the last save": self.last, "the best save": self.best, "the commit": self.committed}
        results: dict[str, Case] = {}
        for name, build in builds.items():
            if build and build.library not in {case.library, *(c.library for c in results.values())}:
                results[name] = build
        return results | {c.variant: c for c in self.references or ()}


@dataclass
class Session:
    """The suite, its processes, and the builds so far. Used as a context, at whose end the processes are ended.

    Args:
        open: makes the context; tests give one with stand-ins.
    """

    settings: Settings
    say: Say
    open: Callable[[Settings], Context] = open_recordable
    _newer: float | None = None  # when a newer save came
    _context: Context = field(init=False)
    _formulas: list[Fact] = field(init=False)
    _code: dict[str, object] = field(default_factory=dict)  # variant → its last build
    _rivals: dict[tuple[str, str], _Rivals] = field(default_factory=dict)
    _next: Path = field(init=False)  # the folder whose ncu process waits

    def __post_init__(self) -> None:
        self._temporary = tempfile.TemporaryDirectory(prefix="flashcore-watch-")
        self._next = Path(self._temporary.name) / "0"
        self._load()
        if not self._context.cannot_measure:
            self._prepare(self._context)

    def _load(self) -> None:
        """Reads the manifest and the problems anew; processes that had imported them are ended."""
        if hasattr(self, "_context"):
            self._context.workers.close()
        opened = self.open(self.settings)
        supported = {arch for v in opened.variants for arch in v.where.archs}
        usual = opened.suite.usual_arch
        arch = opened.gpu_arch or (usual if usual in supported else [a for a in opened.archs if a in supported][-1])
        settings = replace(opened.settings, check=replace(opened.settings.check, lanes=1), roofs=None)
        self._context = replace(
            opened,
            settings=settings.with_time_limit(TIME_LIMIT),
            suite=replace(opened.suite, archs=(arch,), shapes={s.name: s for s in opened.shapes}),
            options=replace(opened.options, archs=(arch,)),
            resident=child.TARGET,
            say=self._say,
        )
        self._context.workers.stays = True
        self._context.workers.stop = self._stop
        self._formulas = formula_facts(self._context)

    @property
    def paths(self) -> list[Path]:
        """The folders to watch: the suite's, and its include folders."""
        root = Path(self._context.suite.root).resolve()
        folders = dict.fromkeys((root, *((root / i).resolve() for i in self._context.suite.include)))
        return [f for f in folders if f.is_dir() and not any(other in f.parents for other in folders)]

    def interrupt(self) -> None:
        """Ends the answers under way, from another thread; a task in progress is first given a second to end."""
        self._newer = time.monotonic()

    def release(self) -> None:
        """Ends the processes, whose CUDA contexts would void the times of another command; the next save starts them
        again."""
        self._context.workers.close()

    def _stop(self) -> None:
        if self._newer is not None and time.monotonic() > self._newer + _GRACE:
            raise Obsolete

    def _say(self, text: str) -> None:
        self._require_current()
        self.say(text)

    def _require_current(self) -> None:
        if self._newer is not None:
            raise Obsolete

    # --- answers ----------------------------------------------------------------------------------

    def answers(self, save: Save) -> Iterator[Answer]:
        """The answers after a save, as they become known.

        Raises:
            Obsolete: :meth:`interrupt` was called.
            FlashcoreError: the manifest or a problem is wrong, or the machine lacks something.
        """
        self._newer = None
        if any(f.suffix in (".py", ".toml") for f in save.files):
            self._load()
        context, watched = self._context, self._affected(save)
        built = compile_all(replace(context, variants=tuple(watched)))
        for variant in watched:
            code = [(a.status, a.code, a.host, a.message) for a in built.artifacts if a.variant == variant.name]
            if save.files and self._code.get(variant.name) == code:
                self._say(f"{variant.name}: the same machine code as before")
                continue
            # Journals answer tasks by name: those of another build must not lie in the same folder.
            folder = self._next.with_name(f"{save.number}-{variant.name}")
            yield from self._of_variant(replace(context, built=built, folder=folder), variant, save)
            self._code[variant.name] = code

    def _affected(self, save: Save) -> list[Variant]:
        """The variants that a changed source is of; all that were selected after another change."""
        selected = [v for v in self._context.variants if not v.is_reference and v.name not in self._context.references]
        root = Path(self._context.suite.root).resolve()
        sources = {v.name: (root / v.kind.file).resolve() for v in selected if isinstance(v.kind, Cuda)}
        if save.files and all(f in sources.values() for f in save.files):
            return [v for v in selected if sources.get(v.name) in save.files]
        return selected

    def _of_variant(self, context: Context, variant: Variant, save: Save) -> Iterator[Answer]:
        def answer(question: Question, content: Content, shape: str | None = None) -> Answer:
            self._require_current()
            status, lines, data = content
            seconds = round(time.monotonic() - save.time, 3)
            return Answer(save.number, variant.name, question, status, seconds, lines, shape, data)

        context = replace(context, variants=(variant, *(v for v in context.variants if v.is_reference)))
        record = self._record(context, Measured())
        yield answer("budgets", self._judged(record, variant))
        shapes = [s for s in context.shapes if variant.runs_on(s)]
        failed = any(a.variant == variant.name and a.status == "failed" for a in context.built.artifacts)
        if context.cannot_measure and not failed:
            for shape in shapes[:1]:
                yield answer("limits", answers.of_limits(record, variant.name, shape.name), shape.name)
        if context.cannot_measure or failed:
            return
        label = f"{variant.name}@{save.number}"  # each build registers its operator under another name in one process
        with context.workers.leased(self.say):
            checked, cases = self._checked(context, variant, label)
            checked = _named(variant.name, label, checked)
            yield answer("right", answers.of_check(checked.outcomes))
            if any(o.status == "failed" for o in checked.outcomes):
                return
            measured = _plus(Measured(), "check", checked)
            for case in cases:
                if self._has_stage("bench", case.shape):
                    result, content = self._timed(context, case, save.longer)
                    measured = _plus(measured, "bench", _named(variant.name, label, result))
                    yield answer("faster", content, case.shape)
            profiled = [context.suite.shapes[c.shape] for c in cases if self._has_stage("profile", c.shape)]
            measured = _plus(measured, "profile", self._profiled(context, variant, profiled))
        record = self._record(context, measured)
        for shape in profiled:
            yield answer("limits", answers.of_limits(record, variant.name, shape.name), shape.name)
        yield answer("budgets", self._judged(record, variant))
        advice.cache_clear()  # it would keep the records of the last saves

    def _has_stage(self, stage: str, shape: str) -> bool:
        return stage in self._context.suite.shapes[shape].stages or shape in self.settings.shapes

    def _record(self, context: Context, measured: Measured) -> Record:
        names = {v.name for v in context.variants}
        formulas = [f for f in self._formulas if f.subject.variant in names]
        return joined(context, store.new_id(), Outcome(formulas, context.built, measured), [])

    def _judged(self, record: Record, variant: Variant) -> Content:
        _, baseline = baseline_of(record.suite, Rules())
        return answers.of_budgets(judge.judge(record, today=today(), variants=[variant.name], baseline=baseline))

    # --- stages -----------------------------------------------------------------------------------

    def _checked(self, context: Context, variant: Variant, label: str) -> tuple[StageResult, list[Case]]:
        """The check of a build on every shape, and its cases that are right."""
        ready, left_out = sort_out(replace(context, variants=(variant,)), "check", ())
        cases = [replace(c, variant=label) if c.library else c for c in child_cases(context, ready)]
        result = check.run(context, cases)
        right = {o.case for o in result.outcomes if o.status == "ok"}
        return replace(result, outcomes=(*left_out, *result.outcomes)), [c for c in cases if c.name in right]

    def _timed(self, context: Context, case: Case, longer: bool) -> tuple[StageResult, Content]:
        """A case's times in turns with those of earlier builds, and of the fastest reference of its shape."""
        rivals = self._rivals.setdefault((case.variant.partition("@")[0], case.shape), _Rivals())
        if rivals.references is None:
            shape = context.suite.shapes[case.shape]
            pairs = [(v, shape) for v in context.variants if v.is_reference and v.runs_on(shape)]
            rivals.references = child_cases(context, pairs)
        others = rivals.named(case)
        factor = 10 if longer else 1
        bench = replace(context.settings.bench, modes=(case.rank_by,), max_samples=30 * factor, seconds=0.5 * factor)
        bench = replace(bench, samples=30 * factor)
        context = replace(context, settings=replace(context.settings, bench=bench))
        result = case_times.run(context, [case, *others.values()], context.folder / "bench")
        samples = {name: result.samples.get(f"{c.name}/{case.rank_by}", ()) for name, c in others.items()}
        samples = {name: times for name, times in samples.items() if times}
        times = result.samples.get(f"{case.name}/{case.rank_by}", ())
        reason = next((o.reason for o in result.outcomes if o.case == case.name), "")
        if not times:
            return result, ("unmeasured", [f"unmeasured: {reason}"], {})
        content = answers.of_times(case.rank_by, times, samples)
        fastest = [c for c in rivals.references if c.variant in samples]
        rivals.references = sorted(fastest, key=lambda c: sum(samples[c.variant]) / len(samples[c.variant]))[:1]
        against = content[2]["against"]
        if rivals.best is None or against.get("the best save", against.get("the last save", {"low": 0}))["low"] > 1:
            rivals.best = case
        rivals.last = case
        return result, content

    def _profiled(self, context: Context, variant: Variant, shapes: Sequence[Shape]) -> StageResult:
        """The counters, measured by the ncu that waits in the folder; the next one is started."""
        context = replace(context, variants=(variant,), shapes=tuple(shapes), references=frozenset(), folder=self._next)
        try:
            return profile.run(context, child_cases(context, [(variant, s) for s in shapes]))
        except CapabilityError as error:
            self.say(f"profile: {error}")
            return StageResult((), ())
        finally:
            self._next = self._next.with_name(str(int(self._next.name) + 1))
            if int(self._next.name) % _RENEWED == 0:
                self.release()
            self._prepare(context)

    def _prepare(self, context: Context) -> None:
        """Starts what the next answers need: the process that checks and times, unless it waits, and one under ncu."""
        context = replace(context, folder=self._next)
        with contextlib.suppress(CapabilityError):  # said by the next save
            check.prepare(context)
            profile.prepare(context)

    # --- the commit ---------------------------------------------------------------------------------

    def compare_with(self, revision: str) -> None:
        """Times the next saves beside the build of a git revision too.

        Raises:
            UsageError: there is no such revision, or no such suite in it.
        """
        from flashcore.plugins.against import checkout
        from flashcore.plugins.against.match_cases import counterpart

        context = self._context
        root = Path(context.suite.root)
        if (commit := checkout.resolve(revision, root)) is None:
            raise UsageError(f"{revision}: expected a git revision of the repository of {root}, found none")
        with checkout.suite_at(revision, commit, root) as folder:
            before = counterpart(folder, context, str(context.build_folder / checkout.BUILD))
            before = replace(before, say=self._say, built=compile_all(before))
            ready, _ = sort_out(before, "bench", ())
            for case in child_cases(before, [(v, s) for v, s in ready if not v.is_reference]):
                rivals = self._rivals.setdefault((case.variant, case.shape), _Rivals())
                rivals.committed = replace(case, variant=f"{case.variant}@commit", root=str(root.resolve()))

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._context.workers.close()
        self._temporary.cleanup()


def _plus(measured: Measured, stage: str, result: StageResult) -> Measured:
    return measured.plus(result, StageNote(stage, "ok", 0.0, ""))


def _named(variant: str, label: str, result: StageResult) -> StageResult:
    """A result with one build's part under the variant's name, without other builds'."""

    def name(build: str) -> str:
        return variant if build == label else build

    return replace(
        result,
        facts=tuple(
            replace(f, subject=replace(f.subject, variant=name(f.subject.variant)))
            for f in result.facts
            if "@" not in name(f.subject.variant)
        ),
        outcomes=tuple(replace(o, variant=name(o.variant)) for o in result.outcomes if "@" not in name(o.variant)),
        samples={
            f"{name(build)}/{rest}": times
            for (build, _, rest), times in ((key.partition("/"), times) for key, times in result.samples.items())
            if "@" not in name(build)
        },
    )
