"""Runs a command: first a cheap survey of all its launches, then under ncu with all metrics for the costly ones.

A capture's folder holds, for each run of the command (``plain``, ``survey``, ``measure-1`` …), the output
(``output.txt``), ncu's messages and its report. A run that ended by a time limit, a crash or a hang keeps its earlier
measurements: the command is ended first, so that ncu can still write.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import MappingProxyType
from typing import Literal

from flashcore.errors import FlashcoreError
from flashcore.features.reports import activity
from flashcore.features.reports import survey as surveys
from flashcore.features.reports.activity import ONLY_NCU, ActivityRecorder
from flashcore.features.reports.execution import execute
from flashcore.machine.capabilities import reported_in
from flashcore.machine.gpu import Gpu
from flashcore.machine.ncu import (
    command_line,
    last_lines,
    raw_page_of,
    refused_metrics,
)
from flashcore.model.cause import Cause, cause_text
from flashcore.model.causes import CRASH, Hang
from flashcore.model.files import make_folder, write_atomically
from flashcore.model.progress import Say, silent
from flashcore.model.settings import ClockControl
from flashcore.readers.kernel_names import demangled
from flashcore.readers.ncu import raw_page
from flashcore.readers.ncu.results import Result
from flashcore.stages.profile import ncu_facts
from flashcore.stages.profile.profile import required_chip

ATTEMPTS = 3  # more runs of the command, for cases that were not launched where the survey saw them
OUTPUT, MESSAGES, LAUNCHES = "output.txt", "ncu.txt", "launches"


class Stopped(Cause):
    """The command was ended on purpose."""

    code = "capture_stopped"
    form = "ended once the chosen launches were measured"


@dataclass(frozen=True, kw_only=True)
class CaptureSettings:
    """The user's choices.

    Args:
        recorder: records the survey; or the cause why ncu does.
        top: the number of cases to measure: kernels at a launch configuration, by the total time of their launches.
        kernel: regular expression for demangled names; other kernels are ignored.
        nvtx: NVTX range, as for ncu's ``--nvtx-include``; launches elsewhere are ignored.
        skip, count: the number of launches to skip first, and the number to consider then.
        source: also collect source counters and the sources.
        settle: run the command once without ncu before, so that its autotuning and compilation are done.
        keep_dropped: also measure the codes that an autotuner tried and dropped.
        stop_early: end the command once the chosen launches are measured.
        options: passed to ncu unchanged.
        time_limit: seconds for each run of the command.
        finish_limit: seconds that ncu has to write its report.
    """

    ncu: Path | str
    recorder: ActivityRecorder | Cause
    top: int = 8
    kernel: str | None = None
    nvtx: str | None = None
    skip: int = 0
    count: int | None = None
    source: bool = False
    settle: bool = False
    keep_dropped: bool = False
    stop_early: bool = False
    clock_control: ClockControl = "none"
    cache_control: Literal["all", "none"] = "all"
    options: Sequence[str] = ()
    progress: Say = silent
    time_limit: float = 600.0
    finish_limit: float = 60.0


@dataclass(frozen=True, slots=True)
class Ran:
    """One run of the command. ``code`` is its exit code (below 0: a signal's); ``None`` if it was ended, with the
    ``cause``. ``report`` is ncu's, if it wrote one."""

    name: str
    code: int | None
    cause: Cause | None
    seconds: float
    report: Path | None = None
    rows: tuple[Result, ...] = ()


@dataclass(frozen=True, slots=True)
class Captured:
    """The runs of the command, the survey, the cases to measure, those of them that no run launched again, the metrics
    that ncu refused with its reasons, and the cause why ncu made the survey."""

    runs: tuple[Ran, ...]
    survey: surveys.Survey
    cases: tuple[surveys.CapturedCase, ...]
    missed: tuple[surveys.CapturedCase, ...] = ()
    refused: dict[str, str] = field(default_factory=dict)
    by_ncu: Cause | None = None


def capture(command: Sequence[str], folder: Path, chosen: CaptureSettings) -> Captured:
    """Captures a command in ``folder``.

    Raises:
        CapabilityError: ncu reports that this machine lacks something.
        FlashcoreError: the command launched no kernel that passes the filters, or ncu failed.
    """
    passes = _Passes(tuple(command), folder, chosen)
    make_folder(folder)
    if chosen.settle:
        passes.run("plain")
    survey = surveys.survey(passes.look())
    last = None if chosen.count is None else chosen.skip + chosen.count
    cases = surveys.select(survey, chosen.top, chosen.skip, last, keep_dropped=chosen.keep_dropped)
    if not cases:
        raise FlashcoreError(
            f"expected launches to measure, found {sum(map(len, survey.launches.values()))} launches of which the "
            f"filters let none pass\n  hint: look at {passes.runs[-1].name}/{OUTPUT}, and at --kernel, --nvtx, "
            "--launch-skip and --launch-count"
        )
    todo, left = surveys.choices(survey, cases, passes.runs[-1].seconds), cases
    for attempt in range(ATTEMPTS):
        measured = {survey.key_of(row) for choice in todo for row in passes.measure(choice).rows}
        left = [case for case in left if case.key not in measured]
        if not left or isinstance(passes.runs[-1].cause, Hang):
            break
        todo = surveys.wider_choices(survey, left, attempt)
    return Captured(tuple(passes.runs), survey, tuple(cases), tuple(left), passes.refused, passes.by_ncu)


class _Passes:
    """The runs of the command so far, and the state for the next ones."""

    def __init__(self, command: tuple[str, ...], folder: Path, chosen: CaptureSettings) -> None:
        self.command, self.folder, self.chosen = command, folder, chosen
        self.runs: list[Ran] = []
        self.refused: dict[str, str] = {}
        self.chip = ""
        self.by_ncu: Cause | None = None

    def look(self) -> Iterable[surveys.SurveyedLaunch]:
        """Returns the times of all launches that pass the filters, with the caches as the command left them."""
        chosen, recorded = self.chosen, False
        most = None if chosen.count is None else chosen.skip + chosen.count
        if chosen.nvtx is not None:
            self.by_ncu = ONLY_NCU("--nvtx")
        elif chosen.stop_early and most is not None:
            self.by_ncu = ONLY_NCU("--stop-early with --launch-count")
        elif isinstance(chosen.recorder, ActivityRecorder):
            recorded, folder = True, self.folder / "survey" / LAUNCHES
            make_folder(folder)
            self.run("survey", environment=chosen.recorder.environment(folder))
            launches, self.by_ncu = activity.read(folder)
            if self.by_ncu is None:
                gpu = Gpu.find()
                self.chip = required_chip(gpu.capability) if gpu else ""
                passing = re.compile(chosen.kernel or "")
                matching = ([x for x in each if passing.search(demangled(x.key.kernel))] for each in launches.values())
                return [launch for each in matching for launch in each[:most]]
        else:
            self.by_ncu = chosen.recorder
        chosen.progress(f"survey: under ncu, about 80 ms a launch: {cause_text(self.by_ncu)}")
        which = [] if most is None else ["--launch-count", str(most), *(["--kill", "yes"] if chosen.stop_early else [])]
        if chosen.kernel is not None:
            which += ["--kernel-name-base", "demangled", "--kernel-name", f"regex:{chosen.kernel}"]
        ran = self._under_ncu(
            "survey-ncu" if recorded else "survey", [surveys.TIME], [*which, "--cache-control", "none"]
        )
        self.chip = required_chip(ran.rows[0].cc) if ran.rows else ""
        return map(surveys.SurveyedLaunch.from_row, ran.rows)

    def measure(self, choice: surveys.Choice) -> Ran:
        """Measures all metrics of the chosen launches; again without those that ncu refuses."""
        hangs = any(isinstance(run.cause, Hang) for run in self.runs)
        which = ["--kernel-name-base", choice.base, "--kernel-id", choice.kernel_id]
        which += ["--cache-control", self.chosen.cache_control]
        if hangs or self.chosen.stop_early:
            which += ["--launch-count", str(choice.count), "--kill", "yes"]
        if self.chosen.source:
            which += ["--section", "SourceCounters", "--import-source", "yes"]
        while True:
            metrics = ncu_facts.metrics_to_request(self.chip, self.refused)
            number = 1 + sum(run.name.startswith("measure") for run in self.runs)
            ran = self._under_ncu(f"measure-{number}", metrics, which)
            refused = refused_metrics(self._messages(ran.name), metrics)
            if not refused or refused.keys() <= self.refused.keys():
                return ran
            self.refused.update(refused)

    def _under_ncu(self, name: str, metrics: list[str], which: list[str]) -> Ran:
        chosen = self.chosen
        report = self.folder / name / "report.ncu-rep"
        launches = ["--target-processes", "all", "--nvtx"]
        launches += ["--nvtx-include", chosen.nvtx] if chosen.nvtx is not None else []
        messages = str(self.folder / name / MESSAGES).replace("%", "%%")  # ncu expands %h, %p, %q{…}
        wrapper = command_line(
            chosen.ncu,
            report,
            metrics,
            (),
            options=[*launches, *which, *chosen.options, "--log-file", messages],
            clock_control=chosen.clock_control,
        )
        ran = self.run(name, wrapper)
        output = self._messages(name)
        if missing := reported_in(output):
            raise missing
        if not report.exists():
            if name.startswith("survey") and not refused_metrics(output, metrics):
                how = cause_text(ran.cause) or f"the command ended with exit code {ran.code}"
                raise FlashcoreError(
                    f"expected a command that launches kernels, found none ({how}; ncu: {last_lines(output)})\n"
                    f"  hint: look at {report.parent / OUTPUT}; does it run without flashcore?"
                )
            if ran.code:  # ncu's, which has not run the command or has crashed
                ran = self.runs[-1] = replace(ran, code=None, cause=CRASH(ran.code, last_lines(output)))
            return ran
        table = raw_page.parse(raw_page_of(chosen.ncu, report, names="mangled"), domain=None)
        if not name.startswith("survey"):  # where NVIDIA's reader is not installed, the record is made from it
            write_atomically(report.with_suffix(".csv"), raw_page_of(chosen.ncu, report).encode())
        for note in table.notes:
            chosen.progress(f"{name}: {note}")
        ran = replace(ran, report=report, rows=table.rows)
        if "--kill" in which and ran.cause is None:
            measured = Counter(row.process for row in table.rows)
            if max(measured.values(), default=0) >= int(which[which.index("--launch-count") + 1]):
                ran = replace(ran, code=None, cause=Stopped())
        self.runs[-1] = ran
        return ran

    def run(self, name: str, wrapper: Sequence[str] = (), environment: Mapping[str, str] = MappingProxyType({})) -> Ran:
        """Runs the command once, with these variables added."""
        chosen, folder = self.chosen, self.folder / name
        chosen.progress(f"{name}: {' '.join(self.command)}")
        # Triton's autotuner caches its choice without ncu on disk, so that later runs choose the same.
        tuned = {"TRITON_CACHE_AUTOTUNING": "1"} if chosen.settle else {}
        make_folder(folder)
        limits = {"time_limit": chosen.time_limit, "finish_limit": chosen.finish_limit}
        ended = execute(self.command, folder / OUTPUT, wrapper=wrapper, environment={**tuned, **environment}, **limits)
        self.runs.append(Ran(name, *ended))
        chosen.progress(f"{name}: {ended.seconds:.1f} s, {cause_text(ended.cause) or f'exit code {ended.code}'}")
        return self.runs[-1]

    def _messages(self, name: str) -> str:
        """ncu's messages; the command's output, if ncu could not even write those."""
        written = (self.folder / name / file for file in (MESSAGES, OUTPUT))
        return next((path.read_text(errors="replace") for path in written if path.exists()), "")
