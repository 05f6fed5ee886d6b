"""A small repository to mutate: the toy suite with limits, a baseline and a recorded run, built and committed."""

from __future__ import annotations

import json
import random
import shutil
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from benchmarks import raw
from flashcore.machine import python_process
from flashcore.model import intervals
from flashcore.model.case import Case
from flashcore.model.causes import OverReference
from flashcore.model.record import CaseOutcome, Facts, Record, Source
from flashcore.model.settings import Settings
from flashcore.pipeline.make_record import present_record
from flashcore.records import store
from tests import factory

TOY = raw.ROOT / "tests" / "suites" / "toy"
RUN = "20260102T030405Z-0001"
#: Neither torch nor the disassembler, which take most of a build's time: nothing here looks at what they make.
START = """import sys, flashcore.machine.toolchain as t
found, t.torch_root = t.optional_tool, lambda: None
t.optional_tool = lambda name: None if name == "nvdisasm" else found(name)"""
LIMITS = """
[[budget]]
name = "shared_memory"
fact = "smem"
max = 16384
source = "a kernel this small"

[[budget]]
name = "block"
fact = "threads"
max = 512
source = "a kernel this small"

[[budget]]
name = "workspace"
fact = "workspace_bytes"
max = 65536
source = "a kernel this small"

[[budget]]
name = "few_registers"
fact = "registers"
max = 4
source = "as few as there can be"

[[waiver]]
budget = "few_registers"
accepted = 40
reason = "the compiler decides"

[[budget]]
name = "time"
fact = "isolated_p50"
max = 12
variants = ["plain", "wide"]
shapes = ["small"]
source = "measured"

[[budget]]
name = "faster"
fact = "speedup_vs_baseline"
min = 1.2
variants = ["wide"]
shapes = ["small"]
source = "measured"

[[gate.rule]]
facts = ["sass_*"]
severity = "show"
reason = "the compiler decides"
"""


@dataclass(frozen=True, slots=True)
class Answer:
    """The exit code and output of a command."""

    code: int
    out: str
    err: str

    @property
    def is_defect(self) -> bool:
        """True if flashcore crashed; it also exits 4 if the machine lacks something."""
        return "defect of flashcore" in self.err

    @property
    def report(self) -> Mapping[str, Any]:
        """The gate's JSON; empty if there is none."""
        try:
            return dict(json.loads(self.out))
        except ValueError:
            return {}

    @property
    def values(self) -> dict[str, tuple[str, Any]]:
        """Each verdict's status and value, by its budget and subject."""
        rows = self.report.get("verdicts", ())
        return {f"{v['budget']} {[*v['subject'].values()]}": (v["status"], v["value"]) for v in rows}

    @property
    def words(self) -> str:
        """The first line that tells why."""
        bad = [
            f"{v['status']} {v['budget']}: {v['reason']}"
            for v in self.report.get("verdicts", ())
            if v["status"] == "fail" or (self.code == 3 and v["status"] == "unmeasured")
        ]
        lines = [*bad, *(line for line in self.err.splitlines() if "FAILED" in line or "flashcore: " in line)]
        return f"exit {self.code}: {(lines or self.err.splitlines() or [''])[0][:160]}"


class Place:
    """The repository; :meth:`fresh` puts it back as it was."""

    def __init__(self, folder: Path) -> None:
        self.folder, self._kept = folder / "work", folder / "kept"
        self.suite, self.profiles = self.folder / "kernels" / "toy", self.folder / "profiles"
        self.build, self.manifest = self.folder / "build", self.suite / "suite.toml"
        exec(START, {})
        shutil.copytree(TOY, self.suite, ignore=shutil.ignore_patterns("__pycache__"))
        self.manifest.write_text(self.manifest.read_text() + LIMITS)
        (self.folder / ".gitignore").write_text("__pycache__/\nbuild/\n")
        self.git("init", "-q", "-b", "main")
        answer = self.flashcore("baseline", "save", *self.where)
        assert answer.code == 0, answer.err
        self.record()
        self.commit()
        shutil.copytree(self.folder, self._kept, symlinks=True)
        self.passing = self.gate("--require", "timing", "--base", "HEAD")
        assert self.passing.code == 0, self.passing.words

    def fresh(self) -> Place:
        """Without what the last mutant did."""
        subprocess.run(["rm", "-rf", str(self.folder)], check=True)
        subprocess.run(["cp", "-a", str(self._kept), str(self.folder)], check=True)
        return self

    @property
    def where(self) -> list[str]:
        return ["--suite", str(self.suite), "--profiles", str(self.profiles), "--build-dir", str(self.build)]

    def git(self, *words: str) -> None:
        who = ["-c", "user.name=t", "-c", "user.email=t@example.org", "-c", "commit.gpgsign=false"]
        subprocess.run(["git", "-C", str(self.folder), *who, *words], check=True, capture_output=True)

    def commit(self) -> None:
        self.git("add", "-A")
        self.git("commit", "-qm", "all")

    def without_baseline(self) -> None:
        (self.suite / "baseline.txt").unlink()

    def edit(self, file: Path, old: str, new: str) -> None:
        text = file.read_text()
        assert old in text, (file, old)
        file.write_text(text.replace(old, new))

    def flashcore(
        self, *words: str, cwd: Path | None = None, env: Mapping[str, str] | None = None, start: str = START
    ) -> Answer:
        """Runs the command line in a process of its own."""
        code = f"{start}\nfrom flashcore.cli.main import main\nsys.exit(main())"
        done = subprocess.run(
            [sys.executable, "-P", "-c", code, *words],
            cwd=cwd or self.folder,
            env={**python_process.environment(), **(env or {})},
            capture_output=True,
            stdin=subprocess.DEVNULL,
            timeout=300,
        )
        return Answer(done.returncode, done.stdout.decode(errors="replace"), done.stderr.decode(errors="replace"))

    def gate(self, *words: str, env: Mapping[str, str] | None = None) -> Answer:
        """Gates the suite; the report is JSON."""
        return self.flashcore("gate", *self.where, "--format", "json", "-q", *words, env=env)

    def present(self) -> Record:
        """The record of the present sources."""
        settings = Settings(str(self.suite), profiles=str(self.profiles), build=str(self.build))
        return present_record(settings, lambda _: None)

    def record(self, run: str = RUN, **changes: Any) -> Path:
        """Records a run of the present sources, as if a GPU had measured it."""
        made = self.present()
        chance = random.Random(7)
        cases = [(v, "small") for v in ("plain", "wide", "two_steps")]
        samples = {
            (Case(v, s), mode): tuple(
                round((8 if v == "wide" else 11) * chance.uniform(0.98, 1.02), 4) for _ in range(30)
            )
            for v, s in cases
            for mode in ("isolated", "back_to_back", "cold")
        }
        facts = [f for f in made.facts if f.source is not Source.EVENTS]
        for (case, mode), series in samples.items():
            facts += [
                factory.fact(f"{mode}_{n}", v, case.variant, shape=case.shape)
                for n, v in intervals.of_samples(series).items()
            ]
        basis = OverReference("plain", "isolated", 30)
        for variant, shape in cases:
            value = intervals.speedup(*(samples[Case(v, shape), "isolated"] for v in ("plain", variant)))
            spread = {"": value, "_low": 0.95 * value, "_high": 1.05 * value}
            facts += [
                factory.fact(f"speedup_vs_baseline{n}", v, variant, shape=shape, detail=basis)
                for n, v in spread.items()
            ]
            facts.append(factory.fact("plan_matches", 1, variant, shape=shape, source=Source.NCU))
            facts += [factory.fact("max_error", 1e-7, variant, shape=name) for name in ("tail", "small")]
        gpu = replace(made.environment, gpu=factory.GPU, gpu_arch="sm_90a")
        ran = tuple(CaseOutcome(v, s, stage, "ok") for v, s in cases for stage in factory.STAGES)
        ran += tuple(CaseOutcome(v, "tail", "check", "ok") for v, _ in cases)
        made = replace(made, id=run, environment=gpu, facts=Facts(facts), raw_samples=samples, outcomes=ran, stale={})
        store.write(replace(made, **changes), folder := store.begin(self.profiles, run))
        return store.complete(folder)
