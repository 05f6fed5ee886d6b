"""``flashcore import``, and what the other commands make of its record."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

import flashcore as fc
from flashcore.cli.main import main
from flashcore.errors import Exit
from flashcore.records import store

BUDGETS = """
[[budget]]
name = "no_local"
fact = "local_load_instructions"
max = 0
kernels = {kernels}
[[budget]]
name = "sectors"
fact = "{metric}"
max = 3e6
kernels = ["saxpy*"]
"""


@pytest.fixture(scope="module")
def profiles(sample_report: Any, sample_reports: Path, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, str]:
    """The profiles folder of the imported sample ``app_basic``, and the run's folder."""
    folder = tmp_path_factory.mktemp("profiles")
    assert main(["import", str(sample_reports / "app_full.ncu-rep"), "--profiles", str(folder)]) == 0
    return folder, str(next(folder.iterdir()))


def gate(
    profiles: tuple[Path, str], tmp_path: Path, kernels: str, metric: str = "lts__t_sectors.sum"
) -> dict[str, Any]:
    budgets, out = tmp_path / "budgets.toml", tmp_path / "gate.json"
    budgets.write_text(BUDGETS.format(kernels=kernels, metric=metric))
    code = main(["gate", profiles[1], "--budgets", str(budgets), "--format", f"json={out}"])
    parsed: dict[str, Any] = json.loads(out.read_text())
    return parsed | {"code": code}


@pytest.mark.parametrize(
    ("kernels", "metric", "code"),
    [
        ('["ns::strided*", "saxpy(*"]', "lts__t_sectors.sum", 0),
        ('["*"]', "lts__t_sectors.sum", 1),  # spilly loads from local memory
        ('["spilly_96"]', "lts__t_sectors.sum", 1),
        ('["saxpy", "gemm*"]', "lts__t_sectors.sum", 3),  # a kernel that is not there frees nobody
        ('["saxpy"]', "lts__t_sektors.sum", 3),  # nor does a metric that was not measured
    ],
)
def test_the_gate_judges_imported_kernels_by_budgets_of_a_file(
    kernels: str, metric: str, code: int, profiles: tuple[Path, str], tmp_path: Path
) -> None:
    assert gate(profiles, tmp_path, kernels, metric)["code"] == code


@pytest.mark.parametrize(
    ("metric", "limit", "code"),
    [
        ("gpu__time_duration.sum", 1e9, 0),
        ("gpu__time_duration.sum", 1, 1),
        ("launch__registers_per_thread", 255, 0),
        ("launch__registers_per_thread", 1, 1),
    ],
)
def test_a_budget_may_name_what_the_catalogue_has_by_its_name_of_ncu(
    metric: str, limit: float, code: int, profiles: tuple[Path, str], tmp_path: Path
) -> None:
    text = f'[[budget]]\nname = "a"\nfact = "{metric}"\nmax = {limit}\nkernels = ["saxpy*"]\n'
    (tmp_path / "budgets.toml").write_text(text)
    assert main(["gate", profiles[1], "--budgets", str(tmp_path / "budgets.toml")]) == code


def test_what_a_budget_of_a_file_names_is_required_and_said_to_be(
    profiles: tuple[Path, str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert gate(profiles, tmp_path, '["saxpy"]', "lts__t_sektors.sum")["code"] == Exit.UNMEASURED
    assert main(["gate", profiles[1], "--budgets", str(tmp_path / "budgets.toml")]) == Exit.UNMEASURED
    output = capsys.readouterr().out
    assert "UNMEASURED, required by --budgets (1)" in output and "--require" not in output


def test_an_import_without_budgets_is_never_called_passed(
    profiles: tuple[Path, str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["gate", profiles[1]]) == Exit.USAGE
    output = capsys.readouterr()
    assert "expected budgets for imported kernels, found none" in output.err and not output.out
    assert main(["report", profiles[1], "--format", "md"]) == 0
    output = capsys.readouterr()
    assert "gate CHECKED NOTHING" in output.out and "passed" not in output.out
    assert main(["report", profiles[1], "-o", str(tmp_path)]) == 0
    page = (tmp_path / "index.html").read_text()
    assert "nothing checked" in page and "gate passed" not in page


def test_compare_shows_the_named_variants(profiles: tuple[Path, str], capsys: pytest.CaptureFixture[str]) -> None:
    run = profiles[1]
    assert main(["compare", run, run, "--variant", "spilly*", "--format", "json"]) == 0
    assert {row["variant"] for row in json.loads(capsys.readouterr().out)["rows"]} == {"spilly_96"}
    assert main(["compare", run, run, "--variant", "spily*"]) == Exit.USAGE
    assert "(did you mean spilly_96?)" in capsys.readouterr().err


def test_where_nothing_can_be_written_nothing_is_said_to_be_kept(
    sample_reports: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "file").write_text("")
    given = ["import", str(sample_reports / "app_basic.ncu-rep"), "--profiles", str(tmp_path / "file")]
    assert main(given) == Exit.USAGE
    message = capsys.readouterr().err
    assert "cannot write: Not a directory" in message and "--resume" not in message


def test_each_launch_keeps_a_promise_by_itself(profiles: tuple[Path, str], tmp_path: Path) -> None:
    result = gate(profiles, tmp_path, '["saxpy"]')
    assert sum(v["budget"] == "sectors" for v in result["verdicts"]) == 5, "the launches of saxpy, with the graph's"


def test_a_report_a_frame_and_a_roofline_are_made_of_it(profiles: tuple[Path, str], tmp_path: Path) -> None:
    from flashcore.explain import roofline

    assert main(["report", profiles[1], "-o", str(tmp_path / "pages")]) == 0
    page = (tmp_path / "pages" / "variant" / "spilly_96.html").read_text()
    assert "void spilly&lt;(int)96&gt;(float *, int)" in page and "SOLBottleneck" in page and "Small Grid" in page
    overview = (tmp_path / "pages" / "index.html").read_text()
    assert ">72.10<" in overview  # five launches of saxpy, µs
    words = re.sub(r"\s+", " ", re.sub("<[^>]+>", "", overview))
    assert "Limited by 88&nbsp;% L2 busy" in words and 'class="whole"' in overview
    assert (
        "Next step request less from L2: coalesce" in words
        and "saves at most 88 % of its time, 38 % of that of all kernels. (l2_throughput 87.8" in words
    )
    record = store.read(Path(profiles[1]))
    points = [p for p in roofline.points(record) if p.level == "dram" and p.subject.variant == "saxpy"]
    assert [(p.counted, p.roof, p.flop) for p in points] == [("hardware", "fp32", 2 * (1 << 22))]
    assert points[0].mode == "cold, ncu (caches flushed)" and not points[0].faults


def test_two_imports_are_compared_case_by_case(
    profiles: tuple[Path, str], sample_reports: Path, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    assert main(["import", str(sample_reports / "app_basic.ncu-rep"), "--profiles", str(tmp_path)]) == 0
    other = capsys.readouterr().out.strip()
    assert main(["compare", profiles[1], other, "--profiles", str(tmp_path), "--format", "json"]) == 0
    parsed = json.loads(capsys.readouterr().out)
    assert {row["variant"] for row in parsed["rows"]} == {
        "saxpy", "ns_strided_float", "ns_strided_double", "spilly_96",
    }  # fmt: skip
    outcomes = {row["variant"]: row["outcome"] for row in parsed["rows"]}
    assert outcomes["spilly_96"] == "no difference"  # 6,432 and 6,560 ns
    assert outcomes["ns_strided_float"] == "faster"  # 102,976 and 100,864 ns
    assert not any(row["judged"] for row in parsed["rows"]), "two reports have no samples"
    assert main(["compare", profiles[1], profiles[1], "--format", "json"]) == 0
    assert json.loads(capsys.readouterr().out)["counts"] == {"cases": {"no difference": 4}, "code": {}}


PAGE = """"ID","Kernel Name","Block Size","Grid Size","CC","device__attribute_display_name","gpu__time_duration.sum"
"","","","","","","ns"
"0","k(int)","(32, 1, 1)","(4, 1, 1)","9.0","NVIDIA H100","5,000"
"1","k(int)","(32, 1, 1)","(4, 1, 1)","8.0","NVIDIA A100","9,000"
"2","k(int)","(32, 1, 1)","(4, 1, 1)","9.0","NVIDIA H100","7,000"
"""


def test_a_report_of_two_gpu_models_is_a_run_for_each(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "page.csv").write_text("==WARNING== Note: uncontrolled\n" + PAGE)
    words = ["import", str(tmp_path / "page.csv"), "--profiles", str(tmp_path / "runs")]
    assert main(words) == 0
    output = capsys.readouterr()
    records = [store.read(Path(line)) for line in output.out.splitlines()]
    assert [record.gpu for record in records] == ["NVIDIA H100", "NVIDIA A100"]
    times = [[f.value for f in r.facts.named("ncu_duration") if f.subject.launch is not None] for r in records]
    assert times == [[5000, 7000], [9000]]
    assert "NVIDIA A100" in output.err and "note: page.csv: ==WARNING== Note: uncontrolled" in output.err
    assert "has no result" not in output.err + records[0].stages[0].reason
    assert main([*words, "--format", "json"]) == 0
    first, second = capsys.readouterr().out.split("\n}\n")[:2]
    assert [json.loads(document + "}")["gpu"] for document in (first, second)] == ["NVIDIA H100", "NVIDIA A100"]


def test_what_is_no_report_is_refused_and_leaves_nothing(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "x.ncu-rep").write_bytes(b"\x7fELF what")
    assert main(["import", str(tmp_path / "x.ncu-rep"), "--profiles", str(tmp_path / "runs")]) == 2
    assert "expected an Nsight Compute report" in capsys.readouterr().err
    assert not (tmp_path / "runs").exists()


@pytest.mark.parametrize(
    ("name", "hint"),
    [
        ("My kernels!", "my_kernels"),
        ("", "k"),
        ("../x", "x"),
        ("2nd", "k_2nd"),
        ("a\n", "a"),
        ("a" * 101, "a" * 53 + "_"),
    ],
)
def test_a_name_that_no_suite_may_have_is_refused(
    name: str, hint: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "x.ncu-rep").write_bytes(b"")
    words = ["import", str(tmp_path / "x.ncu-rep"), "--profiles", str(tmp_path / "runs"), f"--name={name}"]
    assert main(words) == Exit.USAGE
    message = capsys.readouterr().err
    assert f"--name {name!r}: expected a name that matches [a-z][a-z0-9_]{{0,99}}" in message
    assert f"hint: --name {hint}" in message and not (tmp_path / "runs").exists()
    assert main([*words[:-1], f"--name={'a' * 100}"]) == Exit.USAGE
    assert "--name" not in capsys.readouterr().err, "the name is right, and the file is none"


def test_a_report_is_a_run_of_the_api_without_being_recorded(
    profiles: tuple[Path, str], sample_reports: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    recorded = store.read(Path(profiles[1]))
    run = fc.import_report(sample_reports / "app_full.ncu-rep")
    assert tuple(run.record.facts) == tuple(recorded.facts)
    assert list(run.shapes) == list(recorded.suite.shapes)
    assert not [*tmp_path.iterdir()]


@pytest.mark.parametrize(
    ("times", "is_measured"),
    [([0.031, 0.029], True), ([1e-9, 2e-9], True), ([0, 0.3], False), ([-1, 2], False), ([1e34, 1], False)],
)
def test_the_run_of_any_times_can_be_read(times: list[float], is_measured: bool, tmp_path: Path) -> None:
    rows = [{"name": "bm", "real_time": ns, "time_unit": "ns"} for ns in times]
    (tmp_path / "gb.json").write_text(json.dumps({"benchmarks": rows}))
    where = ["--profiles", str(tmp_path / "runs")]
    assert main(["import", str(tmp_path / "gb.json"), *where]) == main(["explain", *where]) == Exit.OK
    (run,) = (tmp_path / "runs").iterdir()
    (time,) = store.read(run).facts.named("eager_p50")
    assert (time.value is not None) is is_measured
