"""The kernels of two versions of compiled files, by ``flashcore compare``."""

from __future__ import annotations

from collections.abc import Mapping

import pytest

from flashcore.cli.comparison import as_text
from flashcore.explain.compare_records import compare
from flashcore.model.record import CodeSubject, Environment, Fact, Facts, Record, Source
from flashcore.model.suite import Binary, Problem, Shape, Suite, Variant, Where

UNITS = {"spill_store_bytes": "B", "code_bytes": "B"}


def record(name: str, facts: Mapping[str, Mapping[str, int | str | None]]) -> Record:
    """An audit of one library: kernel → fact → value."""
    where = Where(("sm_90",))
    variant = Variant("lib", "audit", Binary("lib.so"), "lib.so", where, roof="", tolerance="", tolerance_reason="-")
    problem, shape = Problem("audit", "", "", (), (), ()), Shape("audit", "audit", {}, ())
    suite = Suite("audit", "", ".", "", ("sm_90",), "", {"audit": problem}, {"audit": shape}, {"lib": variant}, (), ())
    return Record(
        id=name,
        command="",
        suite=suite,
        environment=Environment(None, "", "", "", ""),
        artifacts=(),
        plans=(),
        outcomes=(),
        stages=(),
        facts=Facts(
            Fact(CodeSubject("lib", "sm_90", kernel=kernel), fact, value, UNITS.get(fact, "1"), Source.CUBIN)
            for kernel, of_kernel in facts.items()
            for fact, value in of_kernel.items()
        ),
    )


def test_the_worst_kernel_is_first_and_each_is_one_line() -> None:
    before = record(
        "old",
        {
            "same": {"registers": 32},
            "larger": {"registers": 32, "code_bytes": 128},
            "spills<4>": {"spill_store_bytes": 0, "registers": 255, "code_bytes": 512},
            "slim": {"registers": 64, "code_bytes": 128},
            "gone": {"registers": 40, "code_bytes": 128},
        },
    )
    after = record(
        "new",
        {
            "same": {"registers": 32},
            "larger": {"registers": 32, "code_bytes": 256},
            "spills<4>": {"spill_store_bytes": 56, "registers": 168, "code_bytes": 256},
            "slim": {"registers": 32, "code_bytes": 256},
            "new": {"registers": 40, "code_bytes": 128},
        },
    )
    shown = """\
old → new: code: 2 worse, 1 new, 1 gone, 1 better

worse     spill_store_bytes 0 B → 56 B; registers 255 → 168; code_bytes 512 B → 256 B  lib/spills<4> (sm_90)
worse     code_bytes 128 B → 256 B  lib/larger (sm_90)
new       registers 40; code_bytes 128 B  lib/new (sm_90)
gone      registers 40; code_bytes 128 B  lib/gone (sm_90)
better    registers 64 → 32; code_bytes 128 B → 256 B  lib/slim (sm_90)"""
    compared = compare(before, after)
    assert as_text(compared) == shown
    assert as_text(compared, 1).splitlines() == [*shown.splitlines()[:3], "… 4 more (--top 0 prints all)"]
    worse = as_text(compared, only_worse=True).splitlines()
    assert worse == shown.splitlines()[:4]


@pytest.mark.parametrize(
    ("fact", "was", "now", "how"),
    [
        ("spill_store_bytes", 0, None, "worse"),  # whether it spills is not known anymore
        ("spill_store_bytes", None, 0, "changed"),
        ("sass_ldg_128", 64, 0, "worse"),
        ("sass_ldg_128", 0, 64, "better"),
        ("stack_bytes", 0, 8, "worse"),
    ],
)
def test_a_kernel_is_called_by_its_most_important_change(fact: str, was: int | None, now: int | None, how: str) -> None:
    before, after = (
        record(name, {"k": {fact: value, "code_bytes": code}})
        for name, value, code in (("old", was, 256), ("new", now, 256))
    )
    assert [row.outcome for row in compare(before, after).rows] == [how]


def test_files_that_are_alike_have_no_difference() -> None:
    alike = record("old", {"k": {"registers": 32, "code": "f00d"}})
    assert as_text(compare(alike, alike)) == "old → old: machine code the same in 1 of 1"


def test_a_kernel_whose_code_has_another_name_is_neither_new_nor_gone() -> None:
    before = record("old", {"a<1>": {"registers": 32, "code": "f00d"}, "b": {"registers": 32, "code": "cafe"}})
    after = record("new", {"a<1,0>": {"registers": 32, "code": "f00d"}, "c": {"registers": 32, "code": "beef"}})
    compared = compare(before, after)
    assert compared.summary == "code: 1 new, 1 gone; machine code the same in 1 of 1"
    assert [(row.outcome, row.subject.kernel) for row in compared.rows] == [("new", "c"), ("gone", "b")]


def test_a_kernel_that_only_changed_its_code_is_named() -> None:
    before, after = (record("x", {"k<64>": {"registers": 32, "code": code}}) for code in ("f00d", "cafe"))
    assert as_text(compare(before, after)).splitlines() == [
        "x → x: code: 1 changed; machine code the same in 0 of 1",
        "",
        "changed   other machine code  lib/k<64> (sm_90)",
    ]


def test_an_instantiation_is_compared_with_the_nearest_one() -> None:
    before = record("old", {"k<64,1>": {"registers": 32, "code": "a"}, "k<512,1>": {"registers": 96, "code": "b"}})
    after = record("new", {"k<256,1>": {"registers": 96, "code": "c"}, "k<64,1>": {"registers": 32, "code": "a"}})
    assert as_text(compare(before, after)).splitlines()[2:] == [
        "changed   other machine code  lib/k<256,1> (sm_90) (was k<512,1>)"
    ]
