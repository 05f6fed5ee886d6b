"""A record that was edited by hand is refused, whatever was edited."""

from __future__ import annotations

import dataclasses
import gzip
import json
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from flashcore.cli.main import main
from flashcore.errors import Exit, RecordError
from flashcore.model import times
from flashcore.model.causes import OverReference
from flashcore.model.record import Facts, Record
from flashcore.records import lookup, store
from tests import factory

RUN = "20260102T030405Z-0001"


def timed() -> Record:
    """A run with rates of `fast` on the shape `mission`."""
    made = factory.record()
    samples = {k: tuple(round(x, 4) for x in v) for k, v in made.samples.items()}
    series = {v: samples[f"{v}/mission/isolated"] for v in ("slow", "fast", "cudnn")}
    flop = next(f.number for f in made.facts.named("formula_flop") if f.subject.case == "fast/mission")
    basis = OverReference("slow", "isolated", 30)
    rates = {"tflops": times.tflops(flop or 0.0, series["fast"])}
    for name, other in (("speedup_vs_baseline", "slow"), ("speedup_vs_peer", "cudnn")):
        value = times.speedup(series[other], series["fast"])
        rates |= {name: value, f"{name}_low": 0.9 * value, f"{name}_high": 1.1 * value}
    facts = [factory.fact(n, v, "fast", shape="mission", detail=basis) for n, v in rates.items()]
    return dataclasses.replace(made, facts=Facts([*made.facts, *facts]))


@pytest.fixture
def run(tmp_path: Path) -> Path:
    """A recorded run."""
    store.write(timed(), folder := store.begin(tmp_path, RUN))
    return store.complete(folder)


def edit(folder: Path, file: str, change: Callable[[Any], None]) -> None:
    """Edits a file of a run by hand."""
    path = folder / file
    packed = file.endswith(".gz")
    data = json.loads(gzip.decompress(path.read_bytes()) if packed else path.read_bytes())
    change(data)
    text = json.dumps(data).encode()
    path.write_bytes(gzip.compress(text) if packed else text)


def scaled(fact: str, factor: float) -> Callable[[Any], None]:
    """Scales each value of a fact."""

    def change(data: Any) -> None:
        rows = [row for row in data["facts"] if row[1] == fact and row[2] is not None]
        assert rows
        for row in rows:
            row[2] = type(row[2])(row[2] * factor)

    return change


@pytest.mark.parametrize("factor", [0.9, 1.001])
@pytest.mark.parametrize(
    "fact",
    [
        *(f"{mode}_{what}" for mode in ("isolated", "cold", "back_to_back") for what in ("p50", "mean", "std")),
        "speedup_vs_baseline",
        "speedup_vs_peer",
        "speedup_vs_baseline_low",
        "tflops",
    ],
)
def test_facts_that_their_samples_contradict_are_refused(run: Path, fact: str, factor: float) -> None:
    edit(run, store.FACTS, scaled(fact, 1.5 if fact.endswith("_low") else factor))
    store.seal(run)
    with pytest.raises(RecordError, match=rf"fact {fact.removesuffix('_low')} of .*: expected .*, found"):
        store.read(run)


@pytest.mark.parametrize("fact", ["isolated_samples", "isolated_p50", "tflops", "speedup_vs_peer"])
def test_facts_without_their_samples_are_refused(run: Path, fact: str) -> None:
    edit(run, store.SAMPLES, lambda data: data.pop("fast/mission/isolated"))
    store.seal(run)
    with pytest.raises(RecordError, match=f"{fact} of fast/mission: expected samples that it follows from, found"):
        store.read(run)


def faster(data: Any) -> None:
    for key, series in data.items():
        data[key] = [0.9 * x for x in series]


@pytest.mark.parametrize(
    ("file", "change"),
    [
        (store.FACTS, scaled("registers", 0.9)),
        (store.SAMPLES, faster),
        (store.HEADER, lambda data: data["environment"].update(gpu="NVIDIA B200")),
        (store.HEADER, lambda data: data.update(reads={})),
    ],
)
def test_an_altered_file_is_refused(run: Path, file: str, change: Callable[[Any], None]) -> None:
    edit(run, file, change)
    with pytest.raises(RecordError, match=f"with the hashes in SHA256SUMS, found altered: {file}"):
        store.read(run)
    assert main(["gate", str(run)]) == Exit.USAGE


def test_hashes_can_be_checked_without_flashcore_and_not_left_out(run: Path) -> None:
    subprocess.run(["sha256sum", "--check", "--quiet", store.SUMS], cwd=run, check=True)
    (run / store.SUMS).unlink()
    with pytest.raises(RecordError, match="expected hashes of its files in SHA256SUMS, found none"):
        store.read(run)


@pytest.mark.parametrize("name", [store.LISTINGS, store.FACTS])
def test_a_file_that_was_added_or_removed_is_refused(run: Path, name: str) -> None:
    if (run / name).exists():
        (run / name).unlink()
    else:
        shutil.copy(run / store.FACTS, run / name)
    with pytest.raises(RecordError, match=f"found altered: {name}"):
        store.read(run)


def test_a_date_in_the_future_is_refused_and_is_not_the_newest(run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    later = run.with_name("20990102T030405Z-0001")
    shutil.copytree(run, later)
    edit(later, store.HEADER, lambda data: data.update(id=later.name, created="2099-01-02T03:04:05Z"))
    store.seal(later)
    with pytest.raises(RecordError, match=f"id: expected no time in the future, found {later.name}"):
        store.read(later)
    newest = lookup.latest(run.parent, "attention")
    assert newest is not None and newest.id == RUN
    assert "no time in the future" in capsys.readouterr().err


@pytest.mark.parametrize("month", ["20261302T030405Z-0001", "20260230T030405Z-0001"])
def test_an_id_that_names_no_time_is_refused(run: Path, month: str) -> None:
    edit(run, store.HEADER, lambda data: data.update(id=month))
    store.seal(run)
    with pytest.raises(RecordError, match="id: expected one such as"):
        store.read(run)


@pytest.mark.parametrize("created", ["2026-01-02T03:04:06Z", "2025-01-02T03:04:05Z", "", 7, None])
def test_a_date_that_contradicts_the_id_is_refused(run: Path, created: object) -> None:
    edit(run, store.HEADER, lambda data: data.update(created=created))
    store.seal(run)
    with pytest.raises(RecordError, match="created: expected 2026-01-02T03:04:05Z, as in its id, found"):
        store.read(run)


def test_a_folder_with_the_id_of_a_newer_run_is_refused(run: Path) -> None:
    newer = run.rename(run.with_name("20260203T030405Z-0001"))
    with pytest.raises(RecordError, match=f"id: expected {newer.name}, as its folder is named, found {RUN}"):
        store.read(newer)


def test_gate_says_whether_files_are_as_recorded(run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    main(["gate", str(run)])
    assert f"run {RUN}: intact" in capsys.readouterr().out
