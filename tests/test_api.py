"""The public API: what ``import flashcore as fc`` offers."""

from __future__ import annotations

import datetime
import inspect
import os
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import flashcore as fc
from flashcore.errors import Exit, ManifestError, RecordError, UsageError
from flashcore.model.record import SCHEMA_VERSION, Record
from flashcore.model.suite import Suite
from flashcore.pipeline import plugins
from flashcore.records import store
from tests import factory
from tests.conftest import TESTS, TOY
from tests.recorded import RUNS
from tests.support.imports import loaded

STABLE = TESTS / "data" / "api.txt"
LATER = "20260102T030405Z-0002"


@pytest.fixture(scope="module")
def profiles(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two runs: ``fast`` got twice as fast and uses more registers in the second one."""
    folder = tmp_path_factory.mktemp("profiles")
    suite = factory.suite(budgets=[factory.budget("registers", maximum=100)])
    worse = factory.fact("registers", 120, arch="sm_80", kernel="fast_kernel")
    keep(factory.record(suite), folder)
    keep(factory.record(suite, [worse], {"fast": 20.0}, id=LATER), folder)
    return folder


def keep(record: Record, profiles: Path) -> None:
    folder = profiles / record.id
    folder.mkdir()
    store.write(record, folder)


# --- the package --------------------------------------------------------------------------------


def test_importing_the_package_imports_nothing_heavy() -> None:
    assert loaded("import flashcore as fc; dir(fc), fc.__all__, fc.__version__") == set()
    assert loaded("import flashcore as fc; fc.read_run, fc.judge") <= {"pydantic"}


def test_what_is_promised_is_there() -> None:
    for name in fc.__all__:
        assert getattr(fc, name).__doc__, name
    assert {*fc.__all__} <= {*dir(fc)}
    with pytest.raises(AttributeError, match="has no attribute 'read_runs'"):
        fc.read_runs  # noqa: B018


def test_what_stays_stable_reads_as_recorded(tmp_path: Path) -> None:
    """Names, parameters, frame columns, exit codes and the schema version: a removed line breaks users' programs."""
    present = "\n".join(surface(shutil.copytree(RUNS, tmp_path / "runs"))) + "\n"
    if os.environ.get("FLASHCORE_CONTRACT") == "write":
        STABLE.write_text(present, encoding="utf-8")
    assert present == STABLE.read_text(encoding="utf-8"), "hint: FLASHCORE_CONTRACT=write pytest tests/test_api.py"


def surface(work: Path) -> Iterator[str]:
    """The parts of the API that stability.md calls stable, one per line."""
    yield f"run record schema {SCHEMA_VERSION}"
    yield from (f"exit {code:d} {code.name}" for code in Exit)
    for name in sorted({*fc.__all__, *dict(plugins.entries("api"))}):
        entry = getattr(fc, name)
        yield name + ("" if isinstance(entry, type) else parameters(entry))
        if isinstance(entry, type) and entry.__module__ != "flashcore.errors":
            for member, value in sorted(vars(entry).items()):
                if not member.startswith("_"):
                    yield f"{name}.{member}" + (parameters(value) if inspect.isfunction(value) else "")
    before, after = (fc.read_run(work / f"{which}.run.zip") for which in ("before", "after"))
    frames = {
        "facts_frame()": before.facts_frame(),
        "samples_frame()": before.samples_frame(),
        "bounds_frame()": before.bounds_frame(),
        "limiters_frame()": before.limiters_frame(),
        "table()": before.table(),
        "judge()": fc.judge(before).verdicts,
        "roofline()": fc.roofline(before),
        "runs()": fc.runs(work),
        "compare().cases": fc.compare(before, after).cases,
        "compare().changes": fc.compare(before, after).changes,
    }
    for name, frame in frames.items():
        yield f"{name}: {', '.join(map(str, [*filter(None, frame.index.names), *frame.columns]))}"


def parameters(function: Callable[..., Any]) -> str:
    """A function's parameters without their types, which each version of Python writes differently."""
    signature = inspect.signature(function)
    bare = [p.replace(annotation=p.empty) for p in signature.parameters.values()]
    return str(signature.replace(parameters=bare, return_annotation=signature.empty))


def test_the_package_says_that_it_is_typed() -> None:
    assert Path(fc.__file__).with_name("py.typed").is_file()


# --- suites and runs ----------------------------------------------------------------------------


def test_a_suite_is_read(tmp_path: Path) -> None:
    assert isinstance(fc.load_suite(TOY), Suite)
    with pytest.raises(UsageError, match="expected a suite's manifest"):
        fc.load_suite(tmp_path)
    (tmp_path / "suite.toml").write_text("[suite]\n")
    with pytest.raises(ManifestError):
        fc.load_suite(str(tmp_path))


def test_a_run_is_read_by_id_by_folder_or_as_the_newest(profiles: Path) -> None:
    first = "20260102T030405Z-0001"
    assert fc.read_run(profiles=profiles).record.id == LATER
    assert fc.read_run(first, profiles).record.id == first
    assert fc.read_run(profiles / first).record.id == first
    assert fc.read_run(str(profiles / first)).record.id == first


def test_a_run_that_cannot_be_read_says_why(profiles: Path, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="expected one run's id, folder or packed file, found several"):
        fc.read_run("2026", profiles)
    broken = tmp_path / LATER
    broken.mkdir()
    (broken / "run.json").write_text('{"schema_version": 99}')
    with pytest.raises(RecordError, match="expected schema version 4"):
        fc.read_run(broken)


def test_a_run_shows_itself_in_a_line(profiles: Path) -> None:
    run = fc.read_run(profiles=profiles)
    assert repr(run) == f"<Run {LATER}: attention on NVIDIA H200, {len(run.record.facts):,} facts>"


def test_a_run_gives_its_frames(profiles: Path) -> None:
    run = fc.read_run(profiles=profiles)
    assert len(run.facts_frame()) == len(run.record.facts)
    assert len(run.samples_frame()) == sum(map(len, run.record.samples.values()))
    assert run.table("mission")["isolated_p50 [us]"].idxmin() == "cudnn"
    assert "l2_hit [pct]" in run.table("mission", ["l2_hit"])
    assert (run.shapes, run.variants) == (("mission", "long"), ("slow", "fast", "split", "cudnn"))
    assert run.table().equals(run.table("mission"))
    assert run.bounds_frame().xs(("fast", "mission"))["us"].max() == run.table()["floor [us]"]["fast"]
    assert run.limiters_frame().groupby(["variant", "shape"], observed=True)["share"].max().between(0, 100).all()


# --- judge, roofline ---------------------------------------------------------------------------


def test_a_run_is_judged(profiles: Path) -> None:
    good = fc.judge(fc.read_run("20260102T030405Z-0001", profiles))
    assert good.exit_code is fc.Exit.OK
    bad = fc.judge(fc.read_run(LATER, profiles))
    assert bad.exit_code is Exit.FAILED
    assert bad.verdicts.query("status == 'fail'")["value"].tolist() == [120.0]


def test_a_waiver_holds_until_its_day() -> None:
    waiver = factory.waiver("registers_limit", 96, expires="2026-06-30")
    run = fc.Run(factory.record(factory.suite(budgets=[factory.budget("registers", maximum=90)], waivers=[waiver])))
    assert fc.judge(run, today=datetime.date(2026, 6, 30)).exit_code is Exit.OK
    assert fc.judge(run, today=datetime.date(2026, 7, 1)).exit_code is Exit.FAILED


def test_what_is_required_but_unmeasured_exits_3() -> None:
    run = fc.Run(factory.bare_record(factory.suite(budgets=[factory.budget("tensor_active", minimum=1)])))
    assert fc.judge(run).exit_code is Exit.OK
    assert fc.judge(run, require="counters").exit_code is Exit.UNMEASURED


def test_a_wrong_argument_is_a_usage_error_with_a_hint(profiles: Path) -> None:
    run = fc.read_run(LATER, profiles)
    with pytest.raises(UsageError, match=r"require='statik': expected one of static.*did you mean static"):
        fc.judge(run, require="statik")  # type: ignore[arg-type]
    for call in (lambda: fc.compare(run, LATER), lambda: fc.judge(LATER), lambda: fc.roofline(None)):  # type: ignore
        with pytest.raises(UsageError, match=r"expected a Run, found (?s:.*)read_run"):
            call()
