"""The committed baseline: written, read, held to, tightened, and loosened only with a reason."""

from __future__ import annotations

import contextlib
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from flashcore.cli import baseline as baseline_command
from flashcore.cli import gate as gate_command
from flashcore.errors import Exit, UsageError
from flashcore.gate import baseline, regressions
from flashcore.gate.baseline import Baseline, parse, save
from flashcore.model.causes import CompilerStopped
from flashcore.model.gate_policy import ALLOWANCES
from flashcore.model.record import Facts, Record, Value
from flashcore.model.suite import AheadOfTime, RecordedCubins
from flashcore.pipeline.judging import Rules, judge_record
from tests import factory
from tests.support.baselines import BEFORE, KERNEL, TODAY, fact, failed, judged_by, of

# --- the file -----------------------------------------------------------------------------------


def test_what_was_written_is_read_and_the_same_facts_give_the_same_bytes() -> None:
    text = BEFORE.text()
    again = parse(text)
    assert (again.suite, again.compilers, again.values) == (BEFORE.suite, BEFORE.compilers, BEFORE.values)
    assert again.noted == BEFORE.noted
    assert again.text() == text
    rows = [line for line in text.splitlines() if line and not line.startswith(("#", "suite ", "nvcc "))]
    assert rows == sorted(rows) and len(rows) < len(BEFORE.values)
    assert "fast sm_80,sm_89,sm_90a fast_kernel * registers 96" in rows
    shuffled = replace(of(), facts=Facts(reversed(list(of().facts))))
    assert save(shuffled, None).baseline.text() == text


def test_a_suite_of_recorded_kernels_is_of_no_compiler() -> None:
    suite = factory.suite()
    nameless = replace(of(), environment=replace(of().environment, nvcc=None))
    with pytest.raises(UsageError, match="expected a record that names its nvcc, found none"):
        save(nameless, None)
    variants = {
        n: v if v.is_reference else replace(v, kind=RecordedCubins("recorded", "made.py:f"))
        for n, v in suite.variants.items()
    }
    recorded = replace(nameless, suite=replace(nameless.suite, variants=variants))
    text = save(recorded, None).baseline.text()
    assert "\ncubins recorded\n" in text and "nvcc" not in text
    old = parse(text)
    assert old.text() == text and not failed(judged_by(recorded, old))
    worse = replace(recorded, facts=Facts([*recorded.facts, fact("registers", 200)]))
    assert ("baseline_registers", "fast/fast_kernel (sm_90a)") in failed(judged_by(worse, old))
    assert "recorded" in baseline.words(old.compilers)
    for claim in ("", "cubins compiled", "cubins"):
        with pytest.raises(UsageError):
            parse(text.replace("cubins recorded", claim))
    claimed = judged_by(of(), old)  # of compiled kernels: what another compiler made is not compared
    assert claimed.exit_code is Exit.INCAPABLE and any("recorded cubins" in v.reason for v in claimed.verdicts)
    references = {n: v for n, v in suite.variants.items() if v.is_reference}
    with pytest.raises(UsageError, match="names its nvcc"):
        save(replace(nameless, suite=replace(suite, variants=references)), None)


def test_shapes_that_differ_have_lines_of_their_own() -> None:
    odd = factory.fact("theoretical_occupancy", 50.0, "fast", shape="long", **KERNEL)
    text = save(of(odd), None).baseline.text()
    assert "fast sm_90a fast_kernel long theoretical_occupancy 50\n" in text
    assert "fast sm_90a fast_kernel mission theoretical_occupancy 25\n" in text
    assert judged_by(of(odd), parse(text)).exit_code is Exit.OK
    assert failed(judged_by(of(), parse(text))) == [
        ("baseline_theoretical_occupancy", "fast/long/fast_kernel (sm_90a)")
    ]


@pytest.mark.parametrize(
    ("line", "results"),
    [
        ("fast sm_90a fast_kernel * registers", "baseline:99: expected `variant"),
        ("fast sm_90a fast_kernel * registers many", "expected `variant"),
        ("<<<<<<< HEAD", "expected `variant"),
        ("fast sm_90a fast_kernel * isolated_p50 3", "a fact of a baseline"),
        ("fast sm_90a other_kernel * registers nan", "a fact of a baseline"),
        ("fast sm_90a fast_kernel * registers 96", "one line per fact"),
    ],
)
def test_a_line_that_cannot_be_read_is_named(line: str, results: str) -> None:
    text = BEFORE.text()
    expected = results.replace("99", str(len(text.splitlines()) + 1))
    with pytest.raises(UsageError, match=r"flashcore baseline save") as error:
        parse(text + line + "\n")
    assert expected in str(error.value)


@pytest.mark.parametrize("text", ["", "hello\n", "# flashcore baseline 2: x\n", "# flashcore baseline 1: x\nsuite a\n"])
def test_what_is_no_baseline_is_refused(text: str) -> None:
    with pytest.raises(UsageError, match="expected"):
        parse(text)


@given(st.text(max_size=300))
def test_any_text_is_read_or_refused(text: str) -> None:
    with contextlib.suppress(UsageError):
        parse(f"{baseline.HEADER}: x\nsuite a\nnvcc 13.0.88\n{text}")


# --- saving and the ratchet ---------------------------------------------------------------------


def test_saving_takes_what_is_better_and_keeps_what_is_worse() -> None:
    saved = save(of(fact("registers", 64), fact("sass_bar", 9)), BEFORE)
    assert "fast sm_90a fast_kernel * registers 64\n" in saved.baseline.text()
    assert "fast sm_80,sm_89,sm_90a fast_kernel * sass_bar 6\n" in saved.baseline.text()
    assert saved.tightened == ("fast sm_90a fast_kernel * registers 96 → 64",)
    (kept,) = saved.regressions
    assert kept.startswith('fast sm_90a fast_kernel * sass_bar 6 → 9: [[waiver]] budget = "baseline_sass_bar"')


def test_small_steps_do_not_add_up() -> None:
    old = save(of(fact("registers", 89)), None).baseline
    for registers in (92, 95, 96):
        saved = save(of(fact("registers", registers)), old)
        assert not saved.regressions
        old = saved.baseline
    assert "fast sm_90a fast_kernel * registers 89\n" in old.text()


def test_the_ratchet_only_tightens() -> None:
    suite = factory.suite([*factory.suite().variants.values(), factory.variant("newcomer")])
    record = factory.record(suite, [fact("registers", 64), fact("sass_bar", 9)])
    text = save(record, BEFORE, ratchet=True).baseline.text()
    assert "fast_kernel * registers 64\n" in text and "fast_kernel * sass_bar 6\n" in text
    assert "newcomer sm_90a newcomer_kernel * registers" not in text
    with pytest.raises(UsageError, match="flashcore baseline save"):
        save(record, None, ratchet=True)


def of_two_compilers(nvcc: str, triton: str, *variants: str) -> Record:
    """A record in which only these of the CUDA variant ``fast`` and the Triton variant ``tri`` were built."""
    both = (factory.variant("fast"), factory.variant("tri", kind=AheadOfTime("triton", "tri.py:run")))
    built = [factory.artifact(name, "sm_90a", cxx=f"triton {triton}" if name == "tri" else "g++") for name in variants]
    facts = [factory.fact("registers", 64, name, arch="sm_90a", kernel=f"{name}_kernel") for name in variants]
    return factory.record(
        factory.suite(both), facts, artifacts=tuple(built), plans=(), environment=factory.environment(nvcc=nvcc)
    )


@pytest.mark.parametrize(
    ("built", "nvcc", "triton"),
    [
        ("fast", "13.0.88", "3.6.0"),
        ("tri", "13.0.88", "3.5.1"),
        ("fast", "13.5.37", "3.6.0"),
        ("tri", "13.5.37", "3.5.1"),  # this nvcc made nothing
        ("tri", "13.0.88", "3.6.0"),
    ],
)
def test_a_part_that_is_saved_keeps_what_another_compiler_made(built: str, nvcc: str, triton: str) -> None:
    old = save(of_two_compilers("13.0.88", "3.5.1", "fast", "tri"), None).baseline
    saved = save(of_two_compilers(nvcc, triton, built), old).baseline
    expected = {"fast": {"nvcc": nvcc, "triton": "3.5.1"}, "tri": {"nvcc": "13.0.88", "triton": triton}}
    assert saved.compilers == expected[built] and {key.variant for key in saved.values} == {"fast", "tri"}
    assert parse(saved.text()).compilers == saved.compilers


def test_another_nvcc_starts_anew() -> None:
    record = of(fact("registers", 255), environment=factory.environment(nvcc="13.0.99"))
    saved = save(record, BEFORE)
    assert saved.baseline.compilers == {"nvcc": "13.0.99"} and not saved.regressions
    with pytest.raises(UsageError, match=r"nvcc 13\.0\.99"):
        save(record, BEFORE, ratchet=True)


def test_what_was_not_built_stays() -> None:
    record = of()
    one = replace(
        record,
        artifacts=tuple(a for a in record.artifacts if a.variant == "fast"),
        facts=Facts(f for f in record.facts if f.subject.variant == "fast"),
    )
    assert save(one, BEFORE).baseline.text() == BEFORE.text()


def test_slack_of_the_manifests_own_limits_is_suggested() -> None:
    budgets = [
        factory.budget("registers", "tight", maximum=96),
        factory.budget("registers", "loose", maximum=128),
        factory.budget("theoretical_occupancy", "low", minimum=10),
        factory.budget("sass_bar", "broken", maximum=1),
        factory.budget("isolated_p50", "slow", maximum=1e9),
    ]
    result = regressions.slack(factory.record(factory.suite(budgets=budgets)))
    assert result == ["loose: max = 128 could be 96", "low: min = 10 could be 25"]


# --- the command --------------------------------------------------------------------------------


def test_the_gate_tightens_only_where_it_could_judge(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "baseline.txt"
    file.write_text(BEFORE.text())
    rules = Rules(day=TODAY, baseline=str(file))

    def tighten(record: Record) -> Exit:
        result = judge_record(rules, record)
        gate_command.tighten(result)
        return result.judgement.exit_code

    other = of(fact("registers", 64), environment=factory.environment(nvcc="12.8.93"))
    assert tighten(other) is Exit.INCAPABLE
    assert file.read_text() == BEFORE.text()
    assert tighten(of(fact("registers", 64))) is Exit.OK
    assert "fast_kernel * registers 64" in file.read_text()
    assert "tightened: fast sm_90a fast_kernel * registers 96 → 64" in capsys.readouterr().err


def test_saving_what_is_worse_exits_1_and_leaves_the_file(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "baseline.txt"
    assert baseline_command.save(of(), None, file, ratchet=False) is Exit.OK
    assert baseline_command.save(of(fact("sass_bar", 9)), baseline.read(file), file, ratchet=False) is Exit.FAILED
    assert file.read_text() == BEFORE.text()
    assert "not loosened: " in capsys.readouterr().err


@pytest.mark.parametrize(("old", "ratchet"), [(BEFORE, True), (BEFORE, False), (None, False)])
def test_a_build_that_fails_leaves_its_facts_as_they_were_and_exits_1(
    old: Baseline | None, ratchet: bool, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file, record = tmp_path / "baseline.txt", of()
    artifacts = tuple(replace(a, status="failed") if a.variant == "fast" else a for a in record.artifacts)
    facts = Facts(f for f in record.facts if f.subject.variant != "fast" or not f.subject.arch)
    broken = replace(record, artifacts=artifacts, facts=facts)
    assert baseline_command.save(broken, old, file, ratchet=ratchet) is Exit.FAILED
    assert "not saved: fast for sm_90a does not build" in capsys.readouterr().err
    assert any(line.startswith("fast ") for line in file.read_text().splitlines()) is (old is not None)
    stopped = tuple(replace(a, cause=CompilerStopped("") if a.status == "failed" else None) for a in artifacts)
    assert baseline_command.save(replace(broken, artifacts=stopped), old, file, ratchet=ratchet) is Exit.INCAPABLE


def test_without_a_baseline_nothing_is_compared_with_one(tmp_path: Path) -> None:
    record = of()
    record = replace(record, suite=replace(record.suite, root=str(tmp_path)))
    judgement = judge_record(Rules(day=TODAY), record).judgement
    assert judgement.exit_code is Exit.OK
    assert not [v for v in judgement.verdicts if v.budget.startswith("baseline_")]


def test_every_fact_of_a_baseline_is_in_the_catalogue() -> None:
    from flashcore.model.catalogue import FACTS

    assert all(FACTS[name].tier == "static" for name in ALLOWANCES)
    assert all(allowance.better == (FACTS[name].better or "higher") for name, allowance in ALLOWANCES.items())


# --- what counts as the present value ----------------------------------------------------------------


def launched(*values: Value | None) -> Record:
    facts = [factory.fact("registers", v, "fast", shape="mission", launch=i, **KERNEL) for i, v in enumerate(values)]
    return factory.bare_record(facts=facts)


@pytest.mark.parametrize(
    ("values", "worst"),
    [
        ((80, 96, 64), 96),
        ((96, 80), 96),
        ((80, None), None),
        ((None, 80), None),
        ((None, None), None),
        ((80, "x", 96), "x"),
    ],
)
def test_of_several_launches_the_worst_counts_and_one_that_is_unknown_leaves_it_unknown(
    values: tuple[Value | None, ...], worst: Value | None
) -> None:
    (result,) = baseline.present(launched(*values)).values()
    assert result.value == worst


def test_a_fact_of_no_arch_is_none_of_a_baseline_and_hides_none_behind_it() -> None:
    facts = [factory.fact("registers", 1, "fast"), factory.fact("registers", 96, "fast", **KERNEL)]
    assert [k.arch for k in baseline.present(factory.bare_record(facts=facts))] == ["sm_90a"]


def test_what_is_worse_on_one_shape_is_loosened_for_that_shape() -> None:
    def at(mission: int, long: int) -> Record:
        return of(
            *(
                factory.fact("theoretical_occupancy", n, "fast", shape=s, **KERNEL)
                for s, n in (("mission", mission), ("long", long))
            )
        )

    (kept,) = save(at(20, 20), save(at(20, 30), None).baseline).regressions
    assert 'archs = ["sm_90a"], shapes = ["long"], accepted = 20' in kept
    (kept,) = save(of(fact("sass_bar", 9)), BEFORE).regressions
    assert 'archs = ["sm_90a"], accepted = 9' in kept


@pytest.mark.parametrize(
    "other",
    [
        Baseline("another", BEFORE.compilers, BEFORE.values),
        Baseline("zzz", {"nvcc": "12.0.1"}, BEFORE.values),
        Baseline(BEFORE.suite, {"nvcc": "99.0.1"}, BEFORE.values),
        Baseline("aaa", {"nvcc": "99.0.1"}, {}),
    ],
)
def test_a_baseline_of_another_suite_or_nvcc_is_replaced_as_a_whole(other: Baseline) -> None:
    saved = save(of(fact("registers", 255)), other)
    assert (saved.baseline.suite, saved.baseline.compilers, saved.regressions) == (BEFORE.suite, BEFORE.compilers, ())
    with pytest.raises(UsageError, match="--ratchet"):
        save(of(), other, ratchet=True)


def test_a_kernel_that_is_gone_is_none_renamed() -> None:
    rest = {key: value for key, value in BEFORE.values.items() if key.kernel != "split_combine"}
    fewer = replace(BEFORE, values=rest)
    assert baseline.renames(BEFORE, fewer) == baseline.renames(fewer, BEFORE) == {}
