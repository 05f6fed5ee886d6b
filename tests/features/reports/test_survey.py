"""Which launches of a command are worth all metrics."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable

import pytest

from flashcore.features.reports import survey as surveys
from flashcore.features.reports.survey import Choice, Survey, SurveyedLaunch, choices, pattern, select, survey
from flashcore.readers.ncu import raw_page
from flashcore.readers.ncu.results import Result
from tests.recorded import RECORDED


def row(kernel: str, us: float, block: int = 128, grid: int = 10, registers: int = 32, process: str = "1") -> Result:
    cells = {surveys.TIME: f"{1000 * us:,.0f}", "launch__registers_per_thread": str(registers)}
    metrics = raw_page.Cells(cells, {surveys.TIME: "nsecond"})
    return Result(0, kernel, "kernel", (grid, 1, 1), (block, 1, 1), (9, 0), metrics, process=process)


def seen(*rows: Result) -> Survey:
    return survey(map(SurveyedLaunch.from_row, rows))


def names(cases: Iterable[surveys.CapturedCase]) -> list[str]:
    return [case.key.kernel for case in cases]


def test_the_first_launch_is_not_steady_and_slow_ones_after_it_are_not() -> None:
    surveyed = seen(*[row("k", us) for us in (90, 40, 12, 10, 10, 11, 10, 10)])
    assert surveyed.cases[0].warm_up == 3 and select(surveyed, 1)[0].at == (3, 4, 5, 6, 7)


def tuning(*then: Result) -> list[Result]:
    """Three codes of one function, each a few times among launches that clear the cache, and then what follows."""
    tried = [launch for r in (64, 96, 128) for _ in range(4) for launch in (row("clear", 3), row("mm", 9, registers=r))]
    return [*tried, *then]


def test_what_an_autotuner_tried_and_dropped_is_not_measured() -> None:
    surveyed = seen(*tuning(*[row("mm", 8, registers=64)] * 5))
    by_registers = {case.key.code[0]: case.dropped for case in surveyed.cases if case.key.kernel == "mm"}
    assert by_registers == {"64": False, "96": True, "128": True}
    assert [c.key.code[0] for c in select(surveyed, 9) if c.key.kernel == "mm"] == ["64"]
    assert len(select(surveyed, 9, keep_dropped=True)) == 4


def test_what_an_autotuner_did_on_an_h200_is_told_apart() -> None:
    """Triton tried four configurations under ncu 2025.3 and used the second (without ncu it takes the third)."""
    text = (RECORDED / "ncu_survey_autotune.csv").read_bytes().decode()
    surveyed = seen(*raw_page.parse(text, domain=None).rows)
    scaled = {case.key.block[0]: case for case in surveyed.cases if case.key.kernel == "scaled"}
    assert {block: case.dropped for block, case in scaled.items()} == {32: True, 64: False, 128: True, 256: True}
    assert len(scaled[64].us) == 18 and scaled[64].warm_up == 1 and scaled[64].at[-10:] == tuple(range(57, 67))


def test_a_loop_over_sizes_and_layers_that_take_turns_are_no_autotuning() -> None:
    assert not any(case.dropped for case in seen(*tuning()).cases)
    layers = [row("mm", 9, registers=r) for _ in range(3) for r in (64, 64, 96, 96, 128, 128)]
    assert not any(case.dropped for case in seen(*layers).cases)


def test_one_launch_of_each_case_is_measured_wherever_it_is() -> None:
    step = [row("a", 5), row("b", 9), row("other", 1), row("c", 4)]
    surveyed = seen(*step * 20)
    (choice,) = choices(surveyed, select(surveyed, 3))
    assert choice.kernels == ("a", "b", "c") and choice.count == 3 and 5 < choice.numbers[0] < 15
    scattered = seen(*[row("a", 5)] * 100, *[row("b", 9)] * 100, *[row("c", 1)] * 100)
    (choice,) = choices(scattered, select(scattered, 3))
    assert choice.count == 3 and len(choice.numbers) == 1 and 25 < choice.numbers[0] < 75


def launches_of(surveyed: Survey, choice: Choice, process: str = "1") -> list[int]:
    """The places of the launches that ncu measures."""
    seen, places = Counter[str](), []
    for place, kernel in enumerate(surveyed.launches[process]):
        seen[kernel] += 1
        if re.search(pattern(choice.kernels), kernel) and seen[kernel] in choice.numbers:
            places.append(place)
    return places


def test_configurations_that_take_turns_are_each_measured_once_steady() -> None:
    step = [*[row("mm", 9, grid=g) for g in (1, 2, 3)], row("act", 3), row("mm", 9, grid=4)]
    surveyed = seen(*step * 9)
    cases = select(surveyed, 9)
    (choice,) = choices(surveyed, cases)
    places = launches_of(surveyed, choice)
    assert len(places) == choice.count <= 6 and all(set(places) & set(case.at) for case in cases)


def test_another_run_is_made_where_it_takes_less_time_than_needless_launches() -> None:
    """Forty configurations of one kernel, at numbers that another kernel has too, and that one's single case."""
    rows = [row("sizes", 9, grid=g) for g in range(1, 41) for _ in range(2)] + [row("same", 50)] * 80
    surveyed = seen(*rows)
    cases = select(surveyed, 99)
    assert [choice.count for choice in choices(surveyed, cases, seconds=1)] == [1, 40]
    assert [choice.count for choice in choices(surveyed, cases, seconds=99)] == [80]


def test_only_launches_that_the_user_asked_for_are_chosen() -> None:
    surveyed = seen(*[row("a", 5)] * 10, *[row("b", 9)] * 10)
    (case,) = select(surveyed, 5, first=3, last=8)
    assert case.key.kernel == "a" and case.at == (3, 4, 5, 6, 7)


@pytest.mark.parametrize(
    ("printed", "inside"),
    [
        ("void ns::strided<float>(T1 *, int, int)", "void ns::strided<float>(T1 *, int, int)"),
        ("void spilly<96>(float *, int)", "void spilly<(int)96>(float *, int)"),  # ncu 2025.3: CSV, and its report
        ("void (anonymous namespace)::f<1>(int)", "void (anonymous namespace)::f<1>(int)"),
        ("void <unnamed>::f(int)", "void <unnamed>::f(int)"),
        ("softmax_kernel", "softmax_kernel"),
        ("a[b].c", "a[b].c"),
    ],
)
def test_a_pattern_matches_its_own_function_and_no_longer_name(printed: str, inside: str) -> None:
    made = pattern([printed, "saxpy(int)"])
    assert re.search(made, inside) and re.search(made, "saxpy(int)")
    head = re.split(r"(?<=\w)[<(]", inside)[0]
    assert not re.search(made, "x" + inside) and not re.search(made, head + "x(int)")


def test_mangled_names_tell_the_instances_of_a_template_apart() -> None:
    surveyed = seen(*[row("_Z1fILi1EEvi", 9), row("_Z1fILi2EEvi", 1), row("softmax_kernel", 5)] * 10)
    (choice,) = choices(surveyed, select(surveyed, 2))
    assert choice.base == "mangled" and set(choice.kernels) == {"_Z1fILi1EEvi", "softmax_kernel"}
    assert not re.search(pattern(choice.kernels), "_Z1fILi2EEvi") and str(surveyed.cases[0].key).startswith(
        "f<1> <<<10,"
    )
    assert choices(seen(row("f(int)", 1)), seen(row("f(int)", 1)).cases)[0].base == "demangled"
