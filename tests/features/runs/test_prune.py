"""``flashcore runs prune`` removes old runs and builds only."""

from __future__ import annotations

import calendar
import dataclasses
import os
import shutil
import subprocess
import time
from pathlib import Path

import pytest

from flashcore.build import build
from flashcore.cli.main import main
from flashcore.errors import CapabilityError, Exit
from flashcore.features.runs import prune
from flashcore.machine import toolchain
from flashcore.model.record import Facts, Record
from flashcore.records import lookup, store
from tests import factory
from tests.conftest import TOY, Built, flashcore

OLD = [f"2026010{day}T000000Z-000{day}" for day in range(1, 6)]
LATER = 2e9  # long after all of them


@pytest.fixture
def profiles(tmp_path: Path) -> Path:
    """Five runs, the oldest first; the second is the newest that a GPU measured."""
    folder = tmp_path / "profiles"
    checked = factory.outcome("fast", "mission", "check")
    for i, name in enumerate(OLD):
        one = factory.record(environment=factory.environment(gpu="NVIDIA H200" if i < 2 else None))
        record: Record = dataclasses.replace(one, id=name, raw_samples={}, facts=Facts(), outcomes=(checked,))
        (folder / name).mkdir(parents=True)
        store.write(record, folder / name)
    return folder


def names(paths: list[Path]) -> list[str]:
    return [p.name for p in paths]


def test_what_is_new_or_joined_or_young_stays(profiles: Path) -> None:
    joined = prune._joined(profiles)
    assert OLD[1] in joined  # whole or not, the newest measured run of the suite
    free = [n for n in reversed(OLD) if n not in joined]
    assert names(prune.old_runs(profiles, 0, LATER)) == free
    assert names(prune.old_runs(profiles, 2, LATER)) == free[2:]
    began = calendar.timegm(time.strptime(OLD[3][:16], "%Y%m%dT%H%M%SZ"))
    assert names(prune.old_runs(profiles, 0, began)) == [n for n in free if n < OLD[3]]
    assert prune.old_runs(profiles.parent / "none", 0, LATER) == []


@pytest.mark.parametrize("days", ["1e4", "500000", "800000", "4e6", "1e18", "1e300", "1.7e308"])
def test_what_is_younger_than_any_number_of_days_stays(days: str, profiles: Path) -> None:
    (profiles / "20260231T000000Z-0000.partial").mkdir()  # no day
    before = sorted(profiles.iterdir())
    words = ["runs", "prune", "--runs", "--keep", "0", "--yes", "--profiles", str(profiles)]
    assert main([*words, "--older-than", days]) == Exit.OK
    assert sorted(profiles.iterdir()) == before


def test_a_run_with_an_unreadable_header_is_pruned(profiles: Path) -> None:
    (profiles / OLD[4] / store.HEADER).write_text("[" * 200_000)
    assert OLD[4] in names(prune.old_runs(profiles, 0, LATER))


def test_what_git_tracks_stays_and_git_must_be_able_to_say(profiles: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for words in (["init", "-q"], ["add", f"profiles/{OLD[4]}/run.json"]):
        subprocess.run(["git", *words], cwd=profiles.parent, check=True)
    result = names(prune.old_runs(profiles, 0, LATER))
    assert OLD[4] not in result and OLD[3] in result
    (profiles.parent / ".git" / "HEAD").write_text("nonsense")
    assert main(["runs", "prune", "--runs", "--profiles", str(profiles), "--keep", "0", "--yes"]) != Exit.OK
    assert len(lookup.runs(profiles)) == 5


def test_nothing_goes_without_yes_and_what_a_process_holds_never(
    profiles: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["runs", "prune", "--runs", "--profiles", str(profiles), "--keep", "0", "--older-than", "0"]
    partial = profiles / "20260101T000000Z-0000.partial"
    going = store.begin(profiles, "20260101T000000Z-ffff")
    shutil.copytree(profiles / OLD[0], partial)
    with store.claimed(going):
        doomed = names(prune.old_runs(profiles, 0, LATER))
        assert partial.name in doomed and going.name not in doomed
        before = sorted(p for p in profiles.rglob("*"))
        assert main(words) == Exit.OK
        assert sorted(p for p in profiles.rglob("*")) == before
        output = capsys.readouterr().out
        assert output.count("to remove") == len(doomed) and "nothing was removed yet: --yes does it" in output
        assert not prune._remove(going) and going.is_dir()
        assert main([*words, "--yes"]) == Exit.OK
        assert not set(doomed) & set(os.listdir(profiles)) and going.is_dir() and (profiles / OLD[1]).is_dir()
        assert "nothing was" not in capsys.readouterr().out


def test_builds_of_the_present_sources_stay(toy: Built, tmp_path: Path) -> None:
    folder, suite = tmp_path / "build", shutil.copytree(toy.suite.root, tmp_path / "suite")
    loaded = dataclasses.replace(toy.suite, root=str(suite))
    used = build.in_use(loaded, toy.folder)
    assert {Path(a.cubin).parent for a in toy.artifacts if a.cubin} <= used
    assert set(toy.folder.glob("toy/*-binding-*")) <= used
    for name in ("toy/plain-sm_80-0123456789abcdef", "revisions/toy/wide-sm_80-0123456789abcdef",
                 "revisions/against/0123456789abcdef", "toy/mine", "other/plain-sm_80-0123456789abcdef"):  # fmt: skip
        (folder / name).mkdir(parents=True)
    for path in (p for p in used if p.is_dir()):
        shutil.copytree(path, folder / path.relative_to(toy.folder))
    for path in toy.folder.glob("toy/*.json"):  # what the builds are made of
        shutil.copy2(path, folder / "toy")
    results = {str(p.relative_to(folder)) for p in prune.old_builds(str(suite), folder, LATER)}
    assert results == {"toy/plain-sm_80-0123456789abcdef", "revisions/toy/wide-sm_80-0123456789abcdef",
                     "revisions/against/0123456789abcdef"}  # fmt: skip
    assert not prune.old_builds(str(suite), folder, 1e9)  # all of it is younger
    (suite / "scale.cu").write_text((suite / "scale.cu").read_text() + "\nint more;\n")
    assert {p.name.rsplit("-", 1)[0] for p in prune.old_builds(str(suite), folder, LATER)} >= {
        "plain-sm_80",
        "wide-sm_80",
    }


def test_runs_are_listed_without_a_compiler(
    profiles: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def no_compiler(_: Path) -> toolchain.Nvcc:
        raise CapabilityError("no nvcc", "install one")

    monkeypatch.setattr(toolchain, "find_nvcc", no_compiler)
    builds = profiles.parent / "build"
    words = [
        "runs",
        "prune",
        "--suite",
        str(TOY),
        "--profiles",
        str(profiles),
        "--build-dir",
        str(builds),
        "--keep",
        "0",
    ]
    words += ["--older-than", "0"]
    assert main([*words, "--builds"]) == Exit.OK, "there is none that a compiler's version might be in the name of"
    (builds / "toy" / "plain-sm_80-0123456789abcdef").mkdir(parents=True)
    os.utime(builds / "toy" / "plain-sm_80-0123456789abcdef", (1e9, 1e9))
    capsys.readouterr()
    assert main(words) == Exit.OK
    out, err = capsys.readouterr()
    assert OLD[3] in out and "plain-sm_80" not in out
    assert err == "flashcore: builds are left as they are: no nvcc\n  hint: install one\n"
    assert main([*words, "--builds"]) == Exit.INCAPABLE


@pytest.mark.parametrize(
    "words", [["--keep", "-1"], ["--runs", "--builds"], *(["--older-than", days] for days in ("nan", "inf", "-1"))]
)
def test_wrong_usage(words: list[str]) -> None:
    assert flashcore("runs", "prune", *words, cwd=TOY).returncode == Exit.USAGE
