"""What a session answers when a GPU measures; the stages' processes are stand-ins that know each build's result."""

from __future__ import annotations

import re
import shutil
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from flashcore.errors import CapabilityError
from flashcore.features.watch import session as watched
from flashcore.features.watch.session import Obsolete, Save, Session
from flashcore.machine.gpu import Gpu
from flashcore.model.case import TimeKey
from flashcore.model.causes import MESSAGE
from flashcore.model.record import CaseOutcome, CaseStatus, CaseSubject, Fact, Source, StageResult
from flashcore.model.settings import Settings
from flashcore.pipeline.opening import open_context
from flashcore.runner.kernel_call import KernelCall
from flashcore.stages.bench import bench
from flashcore.stages.check import check
from flashcore.stages.context import Context
from flashcore.stages.profile import cupti, profile
from tests.conftest import TOY, Built, hide_disassembler

GPU = Gpu("NVIDIA H200", (9, 0), 132, 1 << 37, 60 << 20, 1980.0, "580.65")
Answers = dict[str, dict[str, Any]]


class Stages:
    """The GPU stages; a case is right unless its source has ``wrong``, and takes as many us as the source's edit."""

    def __init__(self, source: Path) -> None:
        self.source = source
        self.us: dict[str, float] = {}  # by the build's name
        self.loaded: dict[str, str] = {}  # by a library, the name under which its operator was registered
        self.timed: list[list[str]] = []
        self.counted: list[str] = []  # by what the counters were read
        self.lacks = ""  # why CUPTI cannot read them

    def outcomes(self, stage: Any, cases: Sequence[KernelCall], wrong: bool = False) -> tuple[CaseOutcome, ...]:
        for case in (c for c in cases if c.library and stage != "profile"):
            assert self.loaded.setdefault(case.library or "", case.variant) == case.variant, "loaded twice"
        status: CaseStatus = "failed" if wrong else "ok"
        cause = MESSAGE("wrong") if wrong else None
        return tuple(CaseOutcome(c.variant, c.shape, stage, status, cause) for c in cases)

    def check(self, context: Context, cases: Sequence[KernelCall]) -> StageResult:
        text = self.source.read_text()
        edit = re.search(r"int edit = (\d+)", text)
        for case in cases:
            self.us.setdefault(case.variant, float(edit[1]) if edit else 9.0)
        return StageResult((), self.outcomes("check", cases, "wrong" in text), reads={"problem.py": {"data.bin": "1"}})

    def bench(self, context: Context, cases: Sequence[KernelCall]) -> StageResult:
        self.timed.append([c.variant.partition("@")[0] for c in cases])
        samples: dict[TimeKey, tuple[float, ...]] = {
            (c.case, c.rank_by): (self.us.get(c.variant, 20.0),) * 9 for c in cases
        }
        medians = [Fact(CaseSubject(case), f"{m}_p50", us[0], "us", Source.EVENTS) for (case, m), us in samples.items()]
        return StageResult(tuple(medians), self.outcomes("bench", cases), samples)

    def count(self, context: Context, cases: Sequence[KernelCall], builds: Sequence[KernelCall]) -> StageResult:
        self.counted.append("cupti")
        if self.lacks:
            raise CapabilityError(self.lacks, "ncu")
        for build in builds:
            assert self.loaded[build.library or ""] == build.variant, "loaded twice"
        return StageResult((), self.outcomes("profile", cases))

    def profile(self, context: Context, cases: Sequence[KernelCall]) -> StageResult:
        self.counted.append("ncu")
        return StageResult((), self.outcomes("profile", cases))


@pytest.fixture
def stages(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, toy: Built) -> Stages:
    shutil.copytree(TOY, tmp_path / "suite")
    shutil.copytree(toy.folder, tmp_path / "build")  # whose operator's binding needs no second compilation
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("CUDA_ARCH", "sm_90a")
    hide_disassembler(monkeypatch)
    made = Stages(tmp_path / "suite" / "scale.cu")

    def opened(settings: Settings) -> Context:
        class Here:
            def places(self, *_: object) -> Any:
                from flashcore.runner.queue import Pool

                return {"GPU-1": GPU}, Pool()

        return open_context(settings, executor=Here())

    monkeypatch.setattr(watched, "open_recordable", opened)
    monkeypatch.setattr(check, "run", made.check)
    monkeypatch.setattr(bench, "run", made.bench)
    monkeypatch.setattr(profile, "run", made.profile)
    monkeypatch.setattr(cupti, "run", made.count)
    for stage in (check, profile):
        monkeypatch.setattr(stage, "prepare", lambda _: None)
    return made


@pytest.fixture
def session(stages: Stages) -> Iterator[Session]:
    with Session(Settings("suite", variants=("plain",), upto="profile", join=False), lambda _: None) as made:
        yield made


def answered(session: Session, *files: Path, longer: bool = False) -> Answers:
    """The last answer to each question."""
    session.newest = Save(session.newest.number + 1, time.monotonic(), files, longer)
    return {answer["question"]: answer for answer in session.answers(session.newest)}


def edited(session: Session, stages: Stages, us: int, more: str = "") -> Answers:
    text = stages.source.read_text().partition("\n__constant__")[0]
    stages.source.write_text(f"{text}\n__constant__ int edit = {us};{more}\n")
    return answered(session, stages.source)


def ratios(answers: Answers) -> dict[str, float]:
    return {name: ratio["value"] for name, ratio in answers["faster"]["data"]["against"].items()}


def test_each_save_is_compared_with_the_last_the_best_and_the_reference(session: Session, stages: Stages) -> None:
    first = edited(session, stages, 10)
    assert [first[q]["status"] for q in ("right", "faster")] == ["ok", "ok"] and "limits" in first
    assert ratios(first) == {"torch_mul": 2.0}
    assert ratios(edited(session, stages, 5)) == {"the last save": 2.0, "torch_mul": 4.0}
    assert ratios(edited(session, stages, 8)) == {"the last save": 0.625, "torch_mul": 2.5}
    assert ratios(edited(session, stages, 4)) == {"the last save": 2.0, "the best save": 1.25, "torch_mul": 5.0}
    assert ratios(edited(session, stages, 6)) == {
        "the last save": pytest.approx(2 / 3),
        "torch_mul": pytest.approx(10 / 3),
    }


def test_an_edit_that_is_undone_is_the_build_that_was_loaded_before(session: Session, stages: Stages) -> None:
    edited(session, stages, 10)
    edited(session, stages, 5)
    undone = edited(session, stages, 10)
    assert undone["right"]["status"] == "ok" and ratios(undone) == {"the last save": 0.5, "torch_mul": 2.0}
    again = answered(session, longer=True)
    assert again["faster"]["data"]["us"] == 10 and ratios(again) == {"the best save": 0.5, "torch_mul": 2.0}


def test_a_wrong_build_is_neither_timed_nor_compared_with(session: Session, stages: Stages) -> None:
    edited(session, stages, 10)
    before = len(stages.timed)
    wrong = edited(session, stages, 1, "  // wrong\n__constant__ int other = 1;")
    assert wrong["right"]["status"] == "failed" and "faster" not in wrong and len(stages.timed) == before
    assert ratios(edited(session, stages, 5)) == {"the last save": 2.0, "torch_mul": 4.0}


def test_ncu_reads_the_counters_once_cupti_could_not(session: Session, stages: Stages) -> None:
    assert "limits" in edited(session, stages, 10) and stages.counted == ["cupti"]
    stages.lacks = "no permission to read counters"
    assert "limits" in edited(session, stages, 5) and "limits" in edited(session, stages, 4)
    assert stages.counted == ["cupti", "cupti", "ncu", "ncu"]


@pytest.mark.parametrize(
    "name", ["problem.py", *(pytest.param(name, marks=pytest.mark.slow) for name in ("suite.toml", "data.bin"))]
)
def test_after_a_change_of_the_problem_earlier_builds_are_not_compared(
    session: Session, stages: Stages, name: str
) -> None:
    edited(session, stages, 10)
    edited(session, stages, 5)
    file = stages.source.with_name(name)
    with file.open("a") as text:
        text.write("\n# another\n")
    changed = answered(session, file.resolve())
    assert changed["right"]["status"] == "ok" and ratios(changed) == {"torch_mul": 4.0}


def test_an_answer_to_an_earlier_save_is_not_given(session: Session, stages: Stages) -> None:
    save = session.newest = Save(1, time.monotonic())
    given = session.answers(save)
    assert next(given)["question"] == "budgets"
    session.newest = Save(2, time.monotonic(), [stages.source])
    with pytest.raises(Obsolete):
        list(given)
    with pytest.raises(Obsolete):
        next(session.answers(save))
    assert {a["question"] for a in session.answers(session.newest)} == {"budgets", "right", "faster", "limits"}
