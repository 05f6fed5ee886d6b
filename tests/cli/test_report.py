"""The command that draws a run: what it holds it against, and what it links."""

from __future__ import annotations

import argparse
import dataclasses
import json
from pathlib import Path

import pytest

from flashcore.cli import report
from flashcore.cli.main import main
from flashcore.errors import Exit
from flashcore.records import store
from tests import factory

OLD = "20260101T000000Z-0000"


def drawn(tmp_path: Path, *words: str) -> str:
    parser = argparse.ArgumentParser()
    report.add_arguments(parser)
    folder = tmp_path / "reports" / "r"
    given = ["--profiles", str(tmp_path / "profiles"), "-o", str(folder), *words]
    assert report.run(parser.parse_args(given)) == 0
    return (folder / "index.html").read_text(encoding="utf-8")


@pytest.fixture
def runs(tmp_path: Path) -> tuple[str, str]:
    """The ids of two recorded runs, the newer one first."""
    first, older = factory.record(), dataclasses.replace(factory.record(times={"split": 30.0}), id=OLD)
    for record in (first, older):
        folder = tmp_path / "profiles" / record.id
        folder.mkdir(parents=True)
        store.write(record, folder)
    return first.id, older.id


def test_a_part_of_a_run_is_drawn_with_what_it_is_compared_with(tmp_path: Path, runs: tuple[str, str]) -> None:
    drawn(tmp_path, runs[0], "--variant", "fast", "--shape", "mission")
    pages = {p.stem for p in (tmp_path / "reports" / "r" / "variant").glob("*.html")}
    assert pages == {"fast", "slow", "cudnn"}, "the variant, its parent and the library"
    text = (tmp_path / "reports" / "r" / "variant" / "fast.html").read_text(encoding="utf-8")
    assert "mission" in text and ">long<" not in text


# --- several chips --------------------------------------------------------------------------------


@pytest.fixture
def chips(tmp_path: Path) -> list[str]:
    """Folders of runs on two chips, the second as if an L4 had recorded it, and what cannot stand beside them."""
    first = factory.record()
    results = {
        "h200": first,
        "l4": factory.on_l4(first),
        "again": dataclasses.replace(first, id=OLD),
        "other": factory.on_l4(factory.record(factory.suite(name="other")), id="20260102T040000Z-0003"),
        "none": factory.bare_record(id="20260102T040000Z-0004", environment=factory.environment(gpu=None)),
    }
    for record in results.values():
        folder = tmp_path / "profiles" / record.id
        folder.mkdir(parents=True)
        store.write(record, folder)
    return [str(tmp_path / "profiles" / record.id) for record in results.values()]


def test_runs_of_several_chips_have_one_report_and_one_gate(
    tmp_path: Path, chips: list[str], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    assert main(["report", *chips[:2]]) == 0
    first = "reports/20260102T030405Z-0001+0002"
    assert capsys.readouterr().out == f"{first}/index.html\n".replace("reports", f"{tmp_path}/reports")
    assert {p.name for p in (tmp_path / first).iterdir() if p.is_dir()} == {"assets", "nvidia-h200", "nvidia-l4"}
    assert main(["report", *chips[:2], "--single-file", "-o", "one"]) == 0
    assert [p.name for p in (tmp_path / "one").iterdir() if p.suffix] == ["index.html"]
    capsys.readouterr()
    assert main(["report", *chips[:2], "--format", "md"]) == 0
    output = capsys.readouterr().out
    assert output.index("NVIDIA H200") < output.index("NVIDIA L4")
    assert main(["gate", *chips[:2]]) == 0
    assert "note: NVIDIA L4, run 20260102T040000Z-0002: gate passed" in capsys.readouterr().out


def test_without_a_run_all_that_one_command_recorded_is_drawn(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    newest, recording = factory.record(), "20260102T030404Z-0000"
    first = dataclasses.replace(newest, recording=recording)
    second = factory.on_l4(newest, recording=recording)
    before = dataclasses.replace(factory.on_l4(newest), id=OLD)  # of a chip of the two, by another command
    for record in (first, second, before):
        folder = tmp_path / "profiles" / record.id
        folder.mkdir(parents=True)
        store.write(record, folder)
    monkeypatch.chdir(tmp_path)
    assert main(["report"]) == 0
    there = tmp_path / "reports" / "20260102T030405Z-0001+0002"  # where the command itself had drawn them
    assert capsys.readouterr().out == f"{there / 'index.html'}\n"
    assert {p.name for p in there.iterdir() if p.is_dir()} == {"assets", "nvidia-h200", "nvidia-l4"}
    assert main(["report", second.id]) == 0  # one that is named is drawn alone
    assert capsys.readouterr().out == f"{tmp_path / 'reports' / second.id / 'index.html'}\n"
    assert main(["report", "--against", OLD]) == Exit.USAGE
    assert f"name one of them: {first.id}, {second.id}" in capsys.readouterr().err


@pytest.mark.parametrize("command", ["report", "gate"])
@pytest.mark.parametrize(
    ("which", "message"),
    [
        ([0, 0], "found the same run twice"),
        ([0, 2], "expected one run of each chip"),
        ([0, 3], "expected runs of one suite"),
        ([1, 4], "expected GPU results to compare chips"),
    ],
)
def test_runs_that_are_not_of_several_chips_are_wrong_usage(
    chips: list[str], command: str, which: list[int], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main([command, *(chips[i] for i in which)]) == Exit.USAGE
    assert message in capsys.readouterr().err


def test_options_of_one_run_are_refused_with_several(chips: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["report", *chips[:2], "--against", chips[2]]) == Exit.USAGE
    assert main(["gate", *chips[:2], "--ratchet"]) == Exit.USAGE
    message = capsys.readouterr().err
    assert "--against: expected one run" in message and "--ratchet: expected one run" in message


def test_a_packed_run_stands_beside_others_and_one_of_an_older_schema_is_refused(
    tmp_path: Path, chips: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    packed = str(tmp_path / "l4.run.zip")
    assert main(["runs", "pack", chips[1], "-o", packed]) == 0
    assert main(["gate", chips[0], packed]) == 0
    assert "NVIDIA L4, run 20260102T040000Z-0002" in capsys.readouterr().out
    header = Path(chips[0]) / store.HEADER
    header.write_text(json.dumps({**json.loads(header.read_text()), "schema_version": 0}))
    assert main(["report", *chips[:2]]) == main(["gate", *chips[:2]]) == Exit.USAGE
    assert "found the older version 0" in capsys.readouterr().err
