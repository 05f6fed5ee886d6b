"""The overview of a binary."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

import pytest

from flashcore.cli.main import main
from flashcore.errors import Exit
from flashcore.features.audit import kernels, page
from flashcore.model.record import Facts, Record
from flashcore.records import store
from tests import factory
from tests.support.fatbins import CUBINS, KERNELS, both, library
from tests.support.judged import book_of


@pytest.fixture
def record(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Record:
    file = tmp_path / "pkg.so"
    file.write_bytes(library(both()))
    assert main(["audit", str(file), "--keep", "--profiles", str(tmp_path / "profiles")]) == Exit.OK
    return store.read(Path(capsys.readouterr().out.splitlines()[-1]))


def test_the_page_counts_what_spills_and_all_code(record: Record) -> None:
    shown = page.page(book_of(record))
    assert shown is not None
    view = shown.view
    by_kernel = {f.subject: f.number for f in record.facts.named("spill_store_bytes")}
    assert view["kernels"] == len(by_kernel) == 2 * len(KERNELS)
    assert view["unmeasured"] == [*by_kernel.values()].count(None) > 0
    assert view["spilling"] == sum(bool(number) for number in by_kernel.values()) > 0
    assert [g.worst.kernel for g in view["worst"]][-1] == "spills", "unmeasured ones come before it"
    code = sum(f.number or 0 for f in record.facts.named("code_bytes"))
    assert sum(size for _, _, tiles in view["tree"] for *_, size in tiles) == code > 0


def test_instantiations_of_a_template_are_one_group_with_the_worst_shown(record: Record) -> None:
    first = [f for f in record.facts if f.subject.kernel == "tensor<4>" and f.subject.arch == "sm_80"]
    spilling = {"spill_load_bytes": 64}
    again = [
        replace(f, subject=replace(f.subject, kernel="tensor<8>"), value=spilling.get(f.name, f.value)) for f in first
    ]
    more = replace(record, facts=Facts([*record.facts, *again]))
    (group,) = [g for g in kernels.groups(more) if g.name == "tensor"]
    assert group.worst.kernel == "tensor<8>" and [*group.spills] == [64, 0]
    assert group.code_bytes == 2 * (group.facts["code_bytes"].number or 0)
    assert len(kernels.groups(more, each=True)) == len(kernels.groups(more)) + 1


def test_the_report_opens_with_it(record: Record, tmp_path: Path) -> None:
    assert main(["report", "--profiles", str(tmp_path / "profiles"), "-o", str(tmp_path / "report")]) == Exit.OK
    html = (tmp_path / "report" / "index.html").read_text(encoding="utf-8")
    assert "kernels spill" in html and "Largest kernels" in html and "fastest" not in html.lower().partition("<h1")[2]


def test_a_suite_keeps_its_overview() -> None:
    assert page.page(book_of(factory.record())) is None


def test_failures_come_first_and_name_their_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The same kernels lie in two files, and only the path tells them apart."""
    monkeypatch.chdir(tmp_path)
    for name in ("old", "new"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "k.cubin").write_bytes(CUBINS["sm_80"])
    files = ["old", "new", "--max", "registers=31"]
    assert main(["audit", *files, "--keep", "--profiles", "profiles"]) == Exit.FAILED
    assert main(["report", "--profiles", "profiles", "-o", "report"]) == Exit.OK
    html = (tmp_path / "report" / "index.html").read_text(encoding="utf-8")
    headline = html.partition("<h1")[2].partition("</h1>")[0]
    assert re.search(r"<b>\d+</b> failures?; <b>\d+</b> of 10 kernels spill", headline)
    failures = re.findall(r"<li><a href=\"[^\"]+\">max_registers</a>: (.*?)</li>", html)
    assert len({*failures}) == len(failures) > 1
    assert all(re.search(r", expected: ≤ 31$", line) and " ," not in line for line in failures)
