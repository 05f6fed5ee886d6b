"""Which cases are taken to which stage."""

from __future__ import annotations

import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from flashcore.build import build
from flashcore.machine import toolchain
from flashcore.machine.gpu import Gpu
from flashcore.model.progress import ProgressLine
from flashcore.model.settings import Settings
from flashcore.model.suite import Where
from flashcore.pipeline import opening
from flashcore.pipeline.opening import open_context
from flashcore.stages.context import Context
from tests import factory
from tests.support import staged

SHAPES = [
    factory.shape("mission"), factory.shape("long"), factory.shape("longer"), factory.shape("tail", stages=("check",)),
]  # fmt: skip


def cases(stage: str, **settings: object) -> list[str]:
    variants = [
        factory.variant("own"),
        factory.reference("all"),
        factory.reference("some", where=Where(("*",), ("long*",))),
    ]
    suite = factory.suite(variants=variants, shapes=SHAPES)
    chosen = Settings("kernels/attention", **settings)  # type: ignore[arg-type]
    context = Context(chosen, suite, None, None, build.Options(), tuple(variants), tuple(SHAPES))
    return [f"{v.name}/{s.name}" for v, s in context.cases(stage)]


def test_references_are_profiled_on_their_own_first_shape() -> None:
    assert cases("profile") == ["own/mission", "all/mission", "own/long", "some/long", "own/longer"]
    assert "all/longer" in cases("bench")


def test_a_shape_is_taken_where_it_says_so_or_the_user_does() -> None:
    assert "own/tail" in cases("check") and "own/tail" not in cases("bench")
    assert "own/tail" in cases("bench", shapes=("tail",))


def test_references_are_timed_and_neither_profiled_nor_sanitized(tmp_path: Path) -> None:
    variant, parent, reference = factory.variant("own"), factory.variant("parent"), factory.reference()
    references = frozenset({"parent", "cudnn"})
    made = staged.context(tmp_path, references=references, shapes=("mission",))
    context = replace(made, variants=(variant, parent, reference), shapes=(SHAPES[0],))
    names = {stage: [v.name for v, _ in context.cases(stage)] for stage in ("bench", "profile", "sanitize")}
    assert names == {"bench": ["own", "parent", "cudnn"], "profile": ["own"], "sanitize": ["own"]}


def test_companions_run_where_a_chosen_variant_does(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    selected = factory.variant("own", where=Where(("*",), ("long",)))
    shapes = [factory.shape("mission"), factory.shape("long")]
    variants = [selected, factory.variant("slow"), factory.reference("all")]
    suite = replace(factory.suite(variants=variants, shapes=shapes), baseline="slow")
    monkeypatch.setattr(opening, "load", lambda *_: suite)
    monkeypatch.setattr(Gpu, "find", lambda: None)

    def taken(*shapes: str, variants: tuple[str, ...] = ("own",)) -> set[str]:
        chosen = Settings("suite", variants=variants, shapes=shapes, build=str(tmp_path), upto="bench")
        return {f"{v.name}/{s.name}" for v, s in open_context(chosen).cases("bench")}

    assert taken() == {"own/long", "slow/long", "all/long"}
    assert "all/mission" in taken("mission"), "what the user names is timed"
    assert "all/mission" in taken(variants=())


GPU = Gpu("NVIDIA L4", (8, 9), 58, 1, 1, 1.0, "1")


@pytest.mark.parametrize(
    ("changes", "torch", "words"),
    [
        ({}, True, ""),
        ({"gpu": None}, True, "no GPU"),
        ({"gpu_arch": None}, True, "NVIDIA L4 runs none of the suite's archs (sm_80, sm_89, sm_90a)"),
        ({"options": build.Options(debug=True)}, True, "a debug build"),
        ({}, False, "torch is not installed"),
    ],
)
def test_why_a_machine_cannot_measure(
    changes: dict[str, Any], torch: bool, words: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(toolchain, "torch_root", lambda: tmp_path if torch else None)
    why = staged.context(tmp_path, **{"gpu": GPU, "gpu_arch": "sm_89", **changes}).cannot_measure
    assert why.startswith(words) and bool(why) == bool(words)


def test_progress_tells_the_remaining_time_from_the_rate(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    lines: list[str] = []
    now = iter((100.0, 102.0, 110.0, 110.0, 111.0))
    monkeypatch.setattr(time, "monotonic", lambda: next(now))
    progress = staged.context(tmp_path, say=lines.append).progress("check", 4)
    for name in "abcde":
        progress(name)
    assert lines == [
        "check 1/4 a", "check 2/4 b (about 4 s left)", "check 3/4 c (about 5 s left)", "check 4/4 d", "check 4/4 e"
    ]  # fmt: skip
    assert [(x.done, x.total) for x in lines if isinstance(x, ProgressLine)] == [(1, 4), (2, 4), (3, 4), (4, 4), (4, 4)]
