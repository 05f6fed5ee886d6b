"""Kills real processes at random moments, and looks at what they left.

    python -m benchmarks.kills [--kills N] [--seed N] [--only SCENARIO ...] [--gpu] [--seconds S]

Each scenario is a command that writes something: a build, a report, a baseline, a journal, a record, the removal of
old runs, the rounds of ncu (a stand-in that plays back real ones; with ``--gpu`` the real one, on a planted suite).
It runs once untouched, which gives its length and what it ought to leave. Then it is killed (SIGKILL, its whole
group) at moments drawn over that length, again and again on what the kill before it left. After each: nothing that
reads as whole is torn, nothing that was measured is lost, and no process outlives it. At the end it is let run, and
has to come to the same end as untouched.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import lzma
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from benchmarks import raw
from flashcore.build.unit import CUBIN
from flashcore.errors import FlashcoreError
from flashcore.machine import python_process
from flashcore.model.files import file_hash
from flashcore.records import lookup, store
from flashcore.runner import journal

TESTS = raw.ROOT / "tests"
_MARK = "FLASHCORE_KILLS"  # in the environment of all that a scenario starts
NO_GPU = "from flashcore.machine.gpu import Gpu; Gpu.find = lambda: None"
_ENDED = (0, 1, 3)  # what a verdict on a machine without a GPU may be, too


class Scenario:
    """A command, and what may be found after a kill of it.

    Args:
        folder: its own, empty.
    """

    share = 1  # of the kills, beside the others
    arch = ""  # to compile for, where it compiles
    patience = 10.0  # seconds that an orphan has to notice
    most = 1.1  # of its length: a few kills come too late, and are drawn again

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        folder.mkdir()

    @property
    def name(self) -> str:
        return type(self).__name__.lower()

    def command(self) -> list[str]:
        raise NotImplementedError

    def prepare(self) -> None:
        """Before anything is timed: what is compiled once, and the disk's cache."""
        self.go()

    def begin(self) -> None:
        """Before each start."""

    def reference(self) -> None:
        """After the run that nobody disturbed."""

    def look(self) -> Iterator[str]:
        """After a kill: what is wrong."""
        return iter(())

    def end(self) -> Iterator[str]:
        """After a last run that nobody disturbed: what is wrong."""
        return self.look()

    def go(self) -> None:
        """Runs it undisturbed."""
        self.begin()
        done = subprocess.run(self.command(), env=self.environment(), cwd=self.folder, capture_output=True, text=True)
        if done.returncode not in _ENDED or "Traceback (most recent call last)" in done.stderr:
            raise SystemExit(
                f"{self.name}: expected it to end well, found exit {done.returncode}\n{done.stderr[-3000:]}"
            )

    def environment(self) -> dict[str, str]:
        return {
            **python_process.environment(),
            "PYTHONDONTWRITEBYTECODE": "1",
            _MARK: str(self.folder),
            "CUDA_ARCH": self.arch,
        }

    def survivors(self) -> list[int]:
        """The processes that a kill left, after they had time to notice."""
        end = time.monotonic() + self.patience
        while (left := _marked(str(self.folder))) and time.monotonic() < end:
            time.sleep(0.05)
        return left


def _marked(value: str) -> list[int]:
    pids = []
    for entry in Path("/proc").glob("[0-9]*"):
        try:
            state = (entry / "stat").read_text().rpartition(")")[2].split()[0]
            if state != "Z" and f"{_MARK}={value}".encode() in (entry / "environ").read_bytes().split(b"\0"):
                pids.append(int(entry.name))
        except (OSError, IndexError):
            continue
    return pids


def flashcore(*words: str, start: str = NO_GPU) -> list[str]:
    """The command line, where there is no GPU."""
    return [
        sys.executable,
        "-P",
        "-c",
        f"import sys\n{start}\nfrom flashcore.cli.main import main\nsys.exit(main())",
        *words,
    ]


def hashes(folder: Path) -> dict[str, str]:
    """Every file below a folder, by its content."""
    return {
        str(p.relative_to(folder)): hashlib.sha256(p.read_bytes()).hexdigest()
        for p in sorted(folder.rglob("*"))
        if p.is_file()
    }


def toy(folder: Path) -> Path:
    """A copy of the toy suite, of one kernel and one arch to build."""
    return shutil.copytree(TESTS / "suites" / "toy", folder / "suite", ignore=shutil.ignore_patterns("__pycache__"))


class Build(Scenario):
    """``flashcore build``: a folder that reads as whole is whole, and says what an undisturbed build says.

    ninja gives each compiler a group of its own: those that it had started run to their end, in a folder that is
    nobody's any more.
    """

    arch = "8.0"
    patience = 120.0

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        toy(folder)
        self._made: dict[str, str] = {}

    def command(self) -> list[str]:
        return flashcore("build", "--suite", "suite", "--build-dir", "build", "--variant", "plain")

    def begin(self) -> None:
        if any(self._units()):  # it got to the end: all of it again
            shutil.rmtree(self.folder / "build")

    def _units(self) -> list[Path]:
        return [
            p.parent for p in (self.folder / "build").glob("*/*/unit.json") if not p.parent.parent.name.startswith(".")
        ]

    def _codes(self) -> dict[str, str]:
        return {u.name: hashlib.sha256((u / CUBIN).read_bytes()).hexdigest() for u in self._units()}

    def reference(self) -> None:
        self._made = self._codes()

    def look(self) -> Iterator[str]:
        for unit in self._units():
            digests = json.loads((unit / "unit.json").read_bytes())["value"]["files"]
            if wrong := [n for n, digest in digests.items() if file_hash(unit / n) != digest]:
                yield f"{unit.name} reads as whole, but {wrong} are not as they were made"
        yield from (f"{p} was left" for p in self.folder.rglob("*.ninja"))

    def end(self) -> Iterator[str]:
        yield from self.look()
        if self._codes() != self._made:
            yield f"expected the cubins {self._made}, found {self._codes()}"


class Report(Scenario):
    """``flashcore report``: the pages are the old ones or the new ones."""

    RUNS = ("20260102T030405Z-0001", "20260102T030405Z-0002")

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        from tests import factory

        for name in self.RUNS:
            run = folder / "profiles" / name
            run.mkdir(parents=True)
            store.write(factory.record(id=name), run)
        subprocess.run(self._of(0, "old"), env=self.environment(), cwd=folder, check=True, capture_output=True)
        self._old, self._new = hashes(folder / "old"), {"": ""}

    def _of(self, run: int, pages: str) -> list[str]:
        return flashcore("report", f"profiles/{self.RUNS[run]}", "-o", pages)

    def command(self) -> list[str]:
        return self._of(1, "pages")

    def begin(self) -> None:
        shutil.rmtree(self.folder / "pages", ignore_errors=True)
        shutil.copytree(self.folder / "old", self.folder / "pages")  # what the kill is to find in its way

    def reference(self) -> None:
        self._new = hashes(self.folder / "pages")

    def look(self) -> Iterator[str]:
        pages = hashes(self.folder / "pages") if (self.folder / "pages").is_dir() else self._old
        if pages not in (self._old, self._new):
            yield f"expected the old pages or the new ones, found {sorted(pages)}"

    def end(self) -> Iterator[str]:
        if hashes(self.folder / "pages") != self._new:
            yield "expected the new pages, found others"


class Baseline(Scenario):
    """``flashcore baseline save``: the file is the old one or the new one."""

    arch = "8.0"

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        toy(folder)
        self._file = folder / "suite" / "baseline.txt"
        self._old = self._new = b""

    def command(self) -> list[str]:
        return flashcore("baseline", "save", "--suite", "suite", "--build-dir", "build", "--variant", "plain")

    def begin(self) -> None:
        if self._old:
            self._file.write_bytes(self._old)

    def reference(self) -> None:
        self._new = self._file.read_bytes()
        lines = self._new.decode().splitlines(keepends=True)
        self._old = "".join(lines[:-1]).encode()  # one fact fewer: the command has something to write

    def look(self) -> Iterator[str]:
        if self._file.read_bytes() not in (self._old, self._new):
            yield "expected the old baseline or the new one, found another"

    def end(self) -> Iterator[str]:
        if self._file.read_bytes() != self._new:
            yield "expected the new baseline, found another"


class Worker(Scenario):
    """A supervised process with its journal: an answer that was written counts for ever; its task is not run again."""

    share = 2

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self._round = 0
        self._answered: dict[str, int] = {}

    def _tasks(self) -> list[dict[str, Any]]:
        return [
            {"name": f"v{i}/s", "payload": {"do": "sleep", "seconds": 0.04, "note": str(self._at / "performed")}}
            for i in range(10)
        ]

    @property
    def _at(self) -> Path:
        return self.folder / f"round{self._round}"

    def command(self) -> list[str]:
        script = str(TESTS / "children" / "supervisor.py")
        return [sys.executable, script, str(self._at), json.dumps(self._tasks())]

    def begin(self) -> None:
        if len(journal.answers(self._at)) == len(self._tasks()):
            self._round, self._answered = self._round + 1, {}
        self._at.mkdir(exist_ok=True)

    def _performed(self) -> list[str]:
        file = self._at / "performed"
        return [line.split()[0] for line in file.read_text().splitlines()] if file.is_file() else []

    def look(self) -> Iterator[str]:
        performed = self._performed()
        answers = {n for n, a in journal.answers(self._at).items() if a.status == "ok"}
        if lost := set(self._answered) - answers:
            yield f"the answers of {sorted(lost)} were there before, and are lost"
        for name, times in self._answered.items():
            if performed.count(name) != times:
                yield f"{name} was answered, and performed again"
        self._answered = {name: performed.count(name) for name in answers}

    def end(self) -> Iterator[str]:
        yield from self.look()
        answers = journal.answers(self._at)
        if [n for n, a in answers.items() if a.status != "ok"] or len(answers) != len(self._tasks()):
            yield f"expected ten answers, found {answers}"


class Records(Scenario):
    """``flashcore profile`` and ``--resume`` where there is no GPU: a run is whole, or unfinished and says so."""

    arch = "8.0"

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        toy(folder)
        self._facts: set[str] = set()
        self._whole: dict[str, dict[str, str]] = {}

    def command(self) -> list[str]:
        started = any((p / "settings.json").is_file() for p in lookup.unfinished(self.folder / "profiles"))
        no_pages = "r.pages = lambda *_, **__: [pathlib.Path('no pages')]"
        start = f"{NO_GPU}\nimport flashcore.cli.report as r, pathlib; {no_pages}"
        words = ("--resume",) if started else ("--suite", "suite", "--build-dir", "build", "--variant", "plain")
        return flashcore(
            "profile", *words, "--profiles", "profiles", *(("--suite", "suite") if started else ()), start=start
        )

    def _runs(self) -> list[Path]:
        return lookup.runs(self.folder / "profiles")

    def reference(self) -> None:
        self._facts = {f"{f.name} {f.subject} {f.value}" for f in store.read(self._runs()[0]).facts}

    def look(self) -> Iterator[str]:
        for run in self._runs():
            try:
                record = store.read(run)
            except FlashcoreError as error:
                yield f"{run.name} reads as whole, but: {error}"
                continue
            if {f"{f.name} {f.subject} {f.value}" for f in record.facts} != self._facts:
                yield f"{run.name} is whole, but its facts are others"
        for name, before in self._whole.items():
            if hashes(self.folder / "profiles" / name) != before:
                yield f"{name} was whole, and is another now"
        self._whole = {run.name: hashes(run) for run in self._runs()}

    def end(self) -> Iterator[str]:
        yield from self.look()
        for folder in lookup.unfinished(self.folder / "profiles"):
            if (folder / "settings.json").is_file():
                yield f"{folder.name} is still unfinished"


class Prune(Scenario):
    """``flashcore runs prune --yes``: what stays is whole, and half a run is none."""

    RUNS = 60

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        from tests import factory

        toy(folder)
        self._one = folder / "one"
        self._one.mkdir()
        store.write(factory.record(id="20260102T030405Z-0001"), self._one)

    def command(self) -> list[str]:
        return flashcore(
            "runs",
            "prune",
            "--runs",
            "--yes",
            "--keep",
            "1",
            "--older-than",
            "0",
            "--profiles",
            "profiles",
            "--suite",
            "suite",
        )

    def begin(self) -> None:
        for i in range(self.RUNS):
            run = self.folder / "profiles" / f"202601{1 + i // 24:02d}T{i % 24:02d}0405Z-0001"
            if not run.is_dir():
                shutil.copytree(self._one, run)
                header = json.loads((run / store.HEADER).read_bytes())
                (run / store.HEADER).write_text(json.dumps({**header, "id": run.name}))

    def look(self) -> Iterator[str]:
        runs = lookup.runs(self.folder / "profiles")
        for run in runs:
            try:
                store.read(run)
            except FlashcoreError as error:
                yield f"{run.name} reads as whole, but: {error}"
        for folder in (self.folder / "profiles").iterdir():
            if folder not in runs:
                shutil.rmtree(folder)  # half removed, and known as such: begin() makes it again
        if not runs or runs[0].name != f"202601{1 + (self.RUNS - 1) // 24:02d}T{(self.RUNS - 1) % 24:02d}0405Z-0001":
            yield "the newest run was to stay"

    def end(self) -> Iterator[str]:
        left = sorted(p.name for p in (self.folder / "profiles").iterdir())
        newest = lookup.runs(self.folder / "profiles")
        if len(newest) != len(left):
            yield f"expected whole runs alone, found {left}"
        yield from self.look()


class Rounds(Scenario):
    """The profile stage: what a round of ncu gave is kept, and at the end every case has its rows."""

    share = 2
    CODE = (
        "import sys; sys.path[:0] = [{root!r}]\n"
        "from pathlib import Path\nfrom flashcore.stages.profile import profile\n"
        "from tests.support.profiled import NAMES, case, profiling\n"
        "r = profile.profiled([case(n) for n in NAMES], Path({at!r}), profiling(batch=2))\n"
    )
    TOLD = (
        "import json; said = {{'status': {{str(o.case): o.status for o in r.outcomes}},\n"
        "  'facts': sorted(f'{{f.name}} {{f.subject}}' for f in r.facts if f.value is not None)}}\n"
        "Path({at!r}, 'over').write_text(json.dumps(said))\n"
    )

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self._round = 0
        self._saved: dict[str, bytes] = {}
        self._facts: list[str] = []

    @property
    def _at(self) -> Path:
        return self.folder / f"p{self._round}"

    def command(self) -> list[str]:
        given = {"root": str(raw.ROOT), "at": str(self._at), "folder": str(self.folder)}
        return [sys.executable, "-c", (self.CODE + self.TOLD).format(**given)]

    def begin(self) -> None:
        if (self._at / "over").exists():
            self._round, self._saved = self._round + 1, {}

    def _said(self) -> dict[str, Any]:
        """The results of the run that completed."""
        return dict(json.loads((self._at / "over").read_text()))

    def reference(self) -> None:
        self._facts = self._said()["facts"]

    def look(self) -> Iterator[str]:
        files = {str(p): p.read_bytes() for p in self._at.rglob("*.csv.xz")} if self._at.is_dir() else {}
        for path, data in files.items():
            try:
                lzma.decompress(data)
            except (lzma.LZMAError, EOFError) as error:
                yield f"{path} is torn: {error}"
        if lost := [p for p, data in self._saved.items() if files.get(p) != data]:
            yield f"{lost} held rows, and are lost or others"
        self._saved = files

    def end(self) -> Iterator[str]:
        yield from self.look()
        answers = self._said()
        if set(answers["status"].values()) != {"ok"}:
            yield f"expected every case to be profiled, found {answers['status']}"
        if answers["facts"] != self._facts:
            other = sorted({*answers["facts"]} ^ {*self._facts})
            yield f"expected the facts of an undisturbed run, found others: {other[:5]}"


class Ncu(Rounds):
    """The same under the real ncu, on four shapes of the planted suite, two to a process and with a few counters: what
    is tried is the end of processes. Its build is not killed."""

    most = 0.8
    CODE = (
        "from dataclasses import replace\nfrom pathlib import Path\n"
        "from flashcore.stages.runnable_cases import child_cases\nfrom flashcore.stages.compiling import compile_all\n"
        "from flashcore.machine.ncu import find_ncu\nfrom flashcore.stages.profile import ncu_facts, profile\n"
        "from flashcore.model.settings import Profile, Settings\n"
        "from flashcore.pipeline.opening import open_context\nfrom flashcore.runner.journal import Task\n"
        "few = ['gpu__time_duration.sum', 'smsp__inst_executed.sum', 'dram__bytes.sum']\n"
        "ncu_facts.metrics_to_request = lambda *_, **__: few\n"
        "chosen = Settings(suite='{folder}/suite', build='{folder}/build', upto='profile', roofs=None)\n"
        "context = open_context(chosen)\n"
        "context = replace(context, built=compile_all(context))\n"
        "cases = child_cases(context, context.cases('profile'))\n"
        "tasks = [Task(case.name, {{'case': case.to_json(), 'device': context.device}}) for case in cases]\n"
        "settings = Profile(limits=replace(Profile().limits, batch=2))\n"
        "chip = profile.required_chip(context.gpu.capability)\n"
        "r = profile.profiled(tasks, Path({at!r}), profile.Profiling(ncu=find_ncu(), chip=chip, settings=settings))\n"
    )

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        suite = shutil.copytree(TESTS / "suites" / "planted", folder / "suite")
        more = [f"[shape.n{i}]\nparams = {{ N = {i * 65536} }}\n" for i in (3, 5)]
        with (suite / "suite.toml").open("a", encoding="utf-8") as stream:
            stream.write("\n" + "\n".join(more))

    def prepare(self) -> None:
        words = ("build", "--suite", str(self.folder / "suite"), "--build-dir", str(self.folder / "build"))
        subprocess.run(flashcore(*words, start=""), env=self.environment(), check=True, capture_output=True)


HERE: tuple[type[Scenario], ...] = (Build, Report, Baseline, Worker, Records, Prune, Rounds)


def main(argv: Sequence[str] | None = None) -> int:
    """Runs all of it; 1 if something was torn, lost or left."""
    return raw.main(__file__, __doc__, arguments, measure, table, argv, lambda f: 1 if any(wrong(f)) else 0)


def arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--kills", type=int, default=200, metavar="N", help="in all (default: 200)")
    parser.add_argument("--seed", type=int, default=1, metavar="N")
    parser.add_argument("--only", nargs="+", choices=[s.__name__.lower() for s in HERE], metavar="SCENARIO")
    parser.add_argument("--gpu", action="store_true", help="the rounds of the real ncu alone (needs a GPU)")
    parser.add_argument("--seconds", type=float, metavar="S", help="kill so long, then no more")


def measure(options: argparse.Namespace) -> dict[str, Any]:
    """Kills, and looks."""
    machine = raw.machine()
    chosen: Sequence[type[Scenario]] = (
        (Ncu,) if options.gpu else [s for s in HERE if not options.only or s.__name__.lower() in options.only]
    )
    whole = sum(s.share for s in chosen)
    rows: list[dict[str, Any]] = []
    ends: dict[str, list[str]] = {}
    with tempfile.TemporaryDirectory(prefix="flashcore-kills-") as name:
        for i, kind in enumerate(chosen):
            scenario = kind(Path(name) / kind.__name__.lower())
            count = options.kills * sum(s.share for s in chosen[: i + 1]) // whole
            chance = random.Random(f"{options.seed} {scenario.name}")
            rows += killed(scenario, count - len(rows), chance, options.seconds or 1e9)
            scenario.go()
            ends[scenario.name] = [*scenario.end(), *(f"process {p} is left" for p in scenario.survivors())]
            print(f"{scenario.name}: at the end {ends[scenario.name] or 'as undisturbed'}", file=sys.stderr, flush=True)
    return {"machine": machine, "kills": rows, "ends": ends}


def killed(scenario: Scenario, count: int, chance: random.Random, seconds: float) -> Iterator[dict[str, Any]]:
    """A row for each kill that met its process alive."""
    scenario.prepare()
    began = time.monotonic()
    scenario.go()
    length = time.monotonic() - began
    print(f"{scenario.name}: {length:.1f} s undisturbed", file=sys.stderr, flush=True)
    scenario.reference()
    done, last = 0, time.monotonic() + seconds
    while done < count and time.monotonic() < last:
        scenario.begin()
        moment = chance.uniform(0, scenario.most * length)
        process = subprocess.Popen(
            scenario.command(), env=scenario.environment(), cwd=scenario.folder, start_new_session=True,
            stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
        )  # fmt: skip
        try:
            code = process.wait(moment)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            code = process.wait()
        left = scenario.survivors()
        wrong = [*scenario.look(), *(f"process {p} is left" for p in left)]
        if code == -signal.SIGKILL:
            done += 1
        elif code not in _ENDED:
            wrong.append(f"expected it to end well, found exit {code}")
        if code == -signal.SIGKILL or wrong:
            print(
                f"{scenario.name} {done}: after {moment:.2f} of {length:.2f} s {wrong or ''}",
                file=sys.stderr,
                flush=True,
            )
            yield {"scenario": scenario.name, "after": round(moment, 3), "of": round(length, 3), "wrong": wrong}


def wrong(results: raw.Results) -> list[str]:
    """All that was found wrong."""
    mistakes = [f"{r['scenario']} after {r['after']} s: {w}" for r in results["kills"] for w in r["wrong"]]
    return [*mistakes, *(f"{name} at the end: {w}" for name, words in results["ends"].items() for w in words)]


def table(results: raw.Results) -> list[str]:
    """The results as lines of text."""
    rows = results["kills"]
    lines = [results["machine"]]
    for name in results["ends"]:
        group = [r for r in rows if r["scenario"] == name]
        bad = sum(bool(r["wrong"]) for r in group)
        length = max((r["of"] for r in group), default=0)
        lines.append(f"{name:10} {len(group):4} kills within {length:.1f} s; after {bad} of them something was wrong")
    bad_words = wrong(results)
    return [*lines, f"{len(rows)} kills; {len(bad_words) or 'nothing'} torn, lost or left", *bad_words]


if __name__ == "__main__":
    sys.exit(main())
