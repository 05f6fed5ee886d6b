"""Options become settings, and a recorded command names no path of the machine."""

from __future__ import annotations

import argparse
from pathlib import Path

import pytest

from flashcore.cli import options
from flashcore.errors import UsageError
from flashcore.model.settings import Settings
from tests.conftest import TOY


def given(*words: str) -> argparse.Namespace:
    parser = argparse.ArgumentParser()
    options.add_cases(parser)
    options.add_measuring(parser, "check", "bench")
    options.add_records(parser)
    return parser.parse_args(["--suite", str(TOY), *words])


def test_without_options_settings_are_the_defaults() -> None:
    made, plain = options.settings(given()), Settings(str(TOY))
    assert (made.check, made.bench, made.shapes, made.gpus, made.sanitize) == (
        plain.check, plain.bench, (), plain.gpus, None
    )  # fmt: skip


def test_options_set_the_fields_of_their_names() -> None:
    made = options.settings(given("--shape", "a", "--shape", "b", "--repeats", "7", "--samples", "9"), upto="check")
    assert (made.shapes, made.check.repeats, made.bench.samples, made.upto) == (("a", "b"), 7, 9, "check")
    limited = options.settings(given("--time-limit", "3"))
    assert limited.check.limits.time_limit == 3
    assert options.settings(given(), suite="elsewhere").suite == "elsewhere"


@pytest.mark.parametrize("option", ["--time-limit", "--repeats", "--samples"])
@pytest.mark.parametrize("value", ["0", "-1"])
def test_what_must_be_above_0_is_told_by_its_option(option: str, value: str) -> None:
    with pytest.raises(UsageError, match=f"{option} {value}: expected a number above 0"):
        options.settings(given(option, value))


def test_recorded_commands_have_no_paths_of_the_machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    words = ["flashcore", "x y", f"{tmp_path}/a/b", f"-o={tmp_path}/c", "--out=d", "/elsewhere/e", "k=/x"]
    assert options.recorded_command(words) == "flashcore 'x y' a/b -o=c --out=d .../e k=/x"


@pytest.mark.parametrize(("words", "named"), [([], None), (["a"], "a")])
def test_a_command_takes_one_run(words: list[str], named: object) -> None:
    parser = argparse.ArgumentParser()
    options.add_run(parser)
    assert parser.parse_args(words).recorded == named
