"""Cubins, ptxas logs and SASS, read from recorded real ones; `cuobjdump` and plain counting are the oracles."""

from __future__ import annotations

import dataclasses
import json
import os
import re
import time
from pathlib import Path

import pytest

from flashcore.build import static_facts as facts_module
from flashcore.explain.verdict_note import note_on
from flashcore.machine import toolchain
from flashcore.model.case import Case
from flashcore.model.cause import Detail
from flashcore.model.causes import MESSAGE, NOT_IN_LOG, SPILLS_DISAGREE, SpillsNotListed
from flashcore.model.record import Artifact, CaseSubject, CodeSubject, Fact, Facts, Launch, Plan, Source
from flashcore.readers import cubin, sass
from tests import factory
from tests.support.cubins import ARCHS, DATA, MANGLED, text
from tests.support.cubins import artifact as artifact

SHOWN = "tensor<4>"


def of(facts: Facts, kernel: str, name: str) -> object:
    """A fact's value."""
    result = facts.get(name, CodeSubject("kernels", "sm_90a", kernel=kernel))
    assert result is not None, name
    return result.value


# --- ptxas --------------------------------------------------------------------------------------


def test_spills_come_from_the_ptxas_log() -> None:
    result = facts_module.ptxas_spills(text("static_sm_90a.log"))
    assert result["spills"] == (52, 52)
    assert result["stack"] == (0, 0)  # 256 bytes of stack, none of them spills
    assert len(result) == 5


def test_a_stack_frame_is_not_a_spill(artifact: Artifact) -> None:
    facts = Facts(facts_module.facts(artifact))
    assert of(facts, "stack", "stack_bytes") == 256
    assert of(facts, "stack", "spill_store_bytes") == 0
    assert of(facts, "spills", "spill_store_bytes") == 52


def spilled(artifact: Artifact, kernel: str = "spills") -> tuple[Fact, Fact]:
    """A kernel's spill facts."""
    stores, loads = (
        Facts(facts_module.facts(artifact)).get(name, CodeSubject("kernels", "sm_90a", kernel=kernel))
        for name in ("spill_store_bytes", "spill_load_bytes")
    )
    assert stores is not None and loads is not None
    return stores, loads


def test_a_log_that_names_no_kernel_leaves_spills_to_the_cubin(artifact: Artifact) -> None:
    assert artifact.log is not None
    Path(artifact.log).write_text("ptxas info    : 0 bytes gmem\n", encoding="utf-8")
    assert [(f.value, f.source, f.detail) for f in spilled(artifact)] == [(52, Source.CUBIN, "")] * 2
    (fact, _) = spilled(artifact, "shared")
    assert fact.value is None and fact.detail == NOT_IN_LOG() and "ptxas log" in fact.note


@pytest.mark.parametrize(
    ("logged", "value", "kind"), [(48, None, SPILLS_DISAGREE), (0, None, SPILLS_DISAGREE), (60, 60, SpillsNotListed)]
)
def test_a_log_that_the_cubin_contradicts(
    artifact: Artifact, logged: int, value: int | None, kind: type[Detail]
) -> None:
    assert artifact.log is not None
    log = text("static_sm_90a.log").replace("52 bytes spill", f"{logged} bytes spill")
    Path(artifact.log).write_text(log, encoding="utf-8")
    for fact in spilled(artifact):
        assert (fact.value, fact.source, fact.detail) == (value, Source.PTXAS, kind(logged, logged, 52, 52))
        assert f"the ptxas log reports {logged} B of spill stores" in fact.note and "the cubin lists 52 B" in fact.note


CALLS = """ptxas info    : 16404 bytes gmem
ptxas info    : Compiling entry function 'calls' for 'sm_90a'
ptxas info    : Function properties for calls
    0 bytes stack frame, 0 bytes spill stores, 0 bytes spill loads
ptxas info    : Used 64 registers, used 0 barriers
ptxas info    : Compile time = 232.928 ms
ptxas info    : Function properties for _Z3midPKfi
    24 bytes stack frame, 24 bytes spill stores, 20 bytes spill loads
ptxas info    : Function properties for _Z5heavyPKfi
    856 bytes stack frame, 1344 bytes spill stores, 1364 bytes spill loads
ptxas info    : Compiling entry function 'none' for 'sm_90a'
ptxas info    : Function properties for none
    0 bytes stack frame, 0 bytes spill stores, 0 bytes spill loads
ptxas info    : Used 10 registers, used 0 barriers
"""


def test_what_a_called_function_spills_its_kernel_does() -> None:
    assert facts_module.ptxas_spills(CALLS) == {"calls": (1368, 1384), "none": (0, 0)}


@pytest.mark.parametrize(("logged", "listed", "expected"), [(52, None, None), (0, (52, 52), None), (0, None, 0)])
def test_functions_that_are_compiled_apart(
    artifact: Artifact,
    monkeypatch: pytest.MonkeyPatch,
    logged: int,
    listed: tuple[int, int] | None,
    expected: int | None,
) -> None:
    assert artifact.log is not None
    log = re.sub(r"\d+ bytes spill", f"{logged} bytes spill", text("static_sm_90a.log"))
    Path(artifact.log).write_text(log, encoding="utf-8")
    content = cubin.read(DATA / "static_sm_90a.cubin", "sm_90a")
    kernels = tuple(dataclasses.replace(k, spills=k.spills and listed) for k in content.kernels)
    content = dataclasses.replace(content, kernels=kernels, separate=("_Z5heavyPKfi",))
    monkeypatch.setattr(cubin, "read", lambda *a: content)
    fact = Facts(facts_module.facts(artifact)).get(
        "spill_store_bytes", CodeSubject("kernels", "sm_90a", kernel="stack")
    )
    assert fact is not None and fact.value == expected
    assert expected is not None or fact.note == "_Z5heavyPKfi is compiled separately, and its callers are unknown"


def test_a_log_of_one_endless_line() -> None:
    began = time.process_time()
    for endless in (
        "7" * 3_000_000,
        " " * 3_000_000,
        "1 bytes stack frame, " * 150_000,
        "Compiling entry function '" * 99_999,
    ):
        assert facts_module.ptxas_spills(f"{CALLS}{endless}\n")["none"] == (0, 0)
    assert time.process_time() - began < 10


@pytest.mark.parametrize("kept", ['{"format": 8}', '{"format": 7, "code": "x"}', "[8]", "8", "{", '{"format": "8"}'])
def test_static_facts_kept_in_another_form_are_read_again(artifact: Artifact, kept: str) -> None:
    assert artifact.cubin is not None
    Path(artifact.cubin).with_name("static.json").write_text(kept, encoding="utf-8")
    assert of(Facts(facts_module.facts(artifact)), "spills", "spill_store_bytes") == 52


def test_performance_warnings_are_counted_and_named(artifact: Artifact) -> None:
    fact = Facts(facts_module.facts(artifact)).get(
        "compiler_warnings", CodeSubject("kernels", "sm_90a", kernel="warned")
    )
    assert fact is not None and fact.value == 1 and fact.note.startswith("(C7508) ")


def test_every_warning_of_ptxas_is_counted_and_the_first_is_shown(artifact: Artifact) -> None:
    assert artifact.log is not None
    bounds = "Value of threads per SM for entry k is out of range. .minnctapersm will be ignored"
    with Path(artifact.log).open("a", encoding="utf-8") as log:
        log.write(f"k.cu(3): warning #177-D: unused\nptxas warning : {bounds}\nptxas k.ptx, line 3; warning : no\n")
    facts = Facts(facts_module.facts(artifact))
    (warned,) = {(f.value, f.note) for f in facts.named("compiler_warnings")}
    assert warned[0] == 3 and warned[1].startswith("(C7508) ")
    record = factory.record(facts=facts)
    subject = CodeSubject("kernels", "sm_90a", kernel="warned")
    assert note_on(record, {}, "compiler_warnings", subject) == warned[1]


# --- SASS ---------------------------------------------------------------------------------------


def sass_counts(listing: str) -> dict[str, dict[str, int]]:
    """Function → its counts."""
    return {name: facts_module.sass_counts(code) for name, code in sass.parse(listing).items()}


@pytest.mark.parametrize("arch", ARCHS)
def test_sass_counts_agree_with_plain_counting(arch: str) -> None:
    listing = text(f"static_{arch}.sass")
    counts = sass_counts(listing)
    parts = re.split(r"//-+ \.text\.(\S+)\s+-+", listing)[1:]
    sections = dict(zip(parts[::2], parts[1::2], strict=True))
    assert set(counts) == set(sections)
    for kernel, code in sections.items():
        for opcode in ("LDL", "STL", "HMMA", "MUFU", "LDG", "STG", "LDS", "STS"):
            name = f"sass_{opcode.lower()}"
            assert counts[kernel][name] == len(re.findall(rf"[ ]{opcode}[. ]", code)), (kernel, opcode)
        lines = re.findall(r"/\*[0-9a-f]{4}\*/(.*?);", code)
        assert counts[kernel]["sass_instructions"] == sum(" NOP" not in f" {x}" for x in lines)


def test_what_the_kernels_are_made_of() -> None:
    counts = sass_counts(text("static_sm_90a.sass"))
    assert counts[MANGLED]["sass_hmma"] == 8  # 4 steps of 16×16×16, two HMMA.16816 each
    assert counts["shared"]["sass_ldg_128"] == counts["shared"]["sass_stg_128"] == 1
    assert counts["shared"]["sass_bar"] == 2
    assert counts["shared"]["sass_atom"] == 1
    assert counts["spills"]["sass_stl"] == 52 // 4
    assert counts["stack"]["sass_hmma"] == 0


def test_predicated_instructions_count_too() -> None:
    listing = (
        ".text.k:\n"
        "        /*0000*/              @!P0 LDG.E.128.CONSTANT R4, desc[UR4][R2.64] ;\n"
        "        /*0010*/              @P6  BAR.SYNC.DEFER_BLOCKING 0x0 ;\n"
        "        /*0020*/             @UP0  UTMALDG.2D [UR8], [UR4] ;\n"
        "        /*0030*/              @!PT HGMMA.64x64x16.F32 R24, gdesc[UR4], RZ, !UPT ;\n"
        "        /*12340*/                  MUFU.EX2 R1, R1 ;\n"
        "        /*12350*/                  NOP;\n"
    )
    counts = sass_counts(listing)["k"]
    names = ("sass_ldg", "sass_ldg_128", "sass_bar", "sass_utmaldg", "sass_hgmma", "sass_mufu")
    assert [counts[n] for n in names] == [1] * 6
    assert counts["sass_instructions"] == 5


def test_no_disassembler_leaves_sass_unmeasured(artifact: Artifact, monkeypatch: pytest.MonkeyPatch) -> None:
    assert artifact.cubin is not None
    Path(artifact.cubin).with_name("variant.sass").unlink()
    monkeypatch.setattr(toolchain, "optional_tool", lambda _: None)
    facts = Facts(facts_module.facts(artifact))
    fact = facts.get("sass_hmma", CodeSubject("kernels", "sm_90a", kernel=SHOWN))
    assert fact is not None and fact.value is None and "no nvdisasm" in fact.note
    assert of(facts, SHOWN, "registers") == 32


def test_a_disassembler_that_fails_is_not_asked_twice(
    artifact: Artifact, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    assert artifact.cubin is not None
    Path(artifact.cubin).with_name("variant.sass").unlink()
    tool = tmp_path / "nvdisasm"
    tool.write_text(f"#!/bin/sh\necho x >> {tmp_path}/runs\nexit 1\n", encoding="utf-8")
    tool.chmod(0o755)
    monkeypatch.setattr(toolchain, "optional_tool", lambda _: tool)
    for _ in range(2):
        fact = Facts(facts_module.facts(artifact)).get("sass_hmma", CodeSubject("kernels", "sm_90a", kernel=SHOWN))
        assert fact is not None and fact.value is None and "could not read" in fact.note
    assert (tmp_path / "runs").read_text(encoding="utf-8").count("x") == 1


@pytest.mark.parametrize(("code", "text"), [(0, "SASS\n"), (1, "")])
def test_a_disassembler_that_fails_gives_no_text(code: int, text: str, tmp_path: Path) -> None:
    tool = tmp_path / "nvdisasm"
    tool.write_text(f"#!/bin/sh\necho SASS\nexit {code}\n", encoding="utf-8")
    tool.chmod(0o755)
    assert facts_module.listing(tmp_path / "x.cubin", tool) == text
    assert facts_module.listing(tmp_path / "x.cubin", None) is None
    (tmp_path / "variant.sass").write_text("made")
    assert facts_module.listing(tmp_path / "x.cubin", tool) == "made"


def test_a_cubin_is_disassembled_once(tmp_path: Path) -> None:
    tool, file, runs = tmp_path / "nvdisasm", tmp_path / "x.cubin", tmp_path / "runs"
    tool.write_text(f'#!/bin/sh\necho x >> {runs}\ncat "$3"\n', encoding="utf-8")
    tool.chmod(0o755)
    for content, count in (("first", 1), ("first", 1), ("second", 2)):
        file.write_text(content)
        assert facts_module.listing(file, tool) == content
        assert runs.read_text(encoding="utf-8").count("x") == count
    os.utime(tool, (1, 1))
    assert facts_module.listing(file, tool) == content
    assert runs.read_text(encoding="utf-8").count("x") == 3, "another disassembler"


# --- what is kept -------------------------------------------------------------------------------


def test_facts_are_kept_and_read_again(artifact: Artifact, monkeypatch: pytest.MonkeyPatch) -> None:
    assert artifact.cubin is not None
    first = facts_module.facts(artifact)

    def refuse(*_: object) -> None:
        raise AssertionError("the cubin was read")

    monkeypatch.setattr(cubin, "read", refuse)
    assert facts_module.facts(artifact) == first


@pytest.mark.parametrize("content", ["", "{", "[]", "{}", '{"format": 1}'])
def test_a_damaged_cache_is_made_anew(artifact: Artifact, content: str) -> None:
    assert artifact.cubin is not None
    first = facts_module.facts(artifact)
    cache = Path(artifact.cubin).with_name("static.json")
    cache.write_text(content, encoding="utf-8")
    assert facts_module.facts(artifact) == first
    assert json.loads(cache.read_bytes())["value"]["kernels"]


def test_what_failed_has_no_facts() -> None:
    assert facts_module.facts(Artifact("v", "sm_90a", "failed", MESSAGE("no"))) == []


# --- with a plan --------------------------------------------------------------------------------


def planned(artifact: Artifact, *launches: Launch, sms: int | None = 132) -> Facts:
    """The facts that a plan gives."""
    plans = [Plan("kernels", "s", launches, 64)]
    return Facts(facts_module.plan_facts(artifact, plans, facts_module.facts(artifact), sms))


def test_plan_facts(artifact: Artifact) -> None:
    facts = planned(artifact, Launch("shared", (264, 2, 1), (128, 1, 1), (1, 1, 1), 30_000))
    subject = CaseSubject(Case("kernels", "s"), kernel="shared", arch="sm_90a")
    assert facts.number("threads", subject) == 128
    assert facts.number("blocks", subject) == 528
    assert facts.number("smem", subject) == 32_048
    # 33,072 of 233,472 bytes in steps of 128: 7 blocks of 4 warps out of 64.
    assert facts.number("blocks_per_sm", subject) == 7
    assert facts.number("theoretical_occupancy", subject) == 43.75
    limiter = facts.get("occupancy_limiter", subject)
    assert limiter is not None and "shared" in str(limiter.value)
    assert facts.number("waves", subject) == round(528 / (132 * 7), 4)
    assert facts.number("workspace_bytes", CaseSubject(Case("kernels", "s"), arch="sm_90a")) == 64


def test_a_kernel_launched_twice_has_two_subjects(artifact: Artifact) -> None:
    one = Launch("shared", (1, 1, 1), (128, 1, 1), (1, 1, 1), 0)
    facts = planned(artifact, one, Launch("stack", (1, 1, 1), (32, 1, 1), (1, 1, 1), 0), one, sms=None)
    assert [f.subject.launch for f in facts.named("threads")] == [0, None, 1]
    assert not facts.named("waves")


def test_a_plan_that_names_another_kernel_is_unmeasured(artifact: Artifact) -> None:
    facts = planned(artifact, Launch("shred", (1, 1, 1), (128, 1, 1), (1, 1, 1), 0))
    fact = facts.get("theoretical_occupancy", CaseSubject(Case("kernels", "s"), kernel="shred", arch="sm_90a"))
    assert fact is not None and fact.value is None and "names shred, which the cubin does not contain" in fact.note


def test_a_cluster_is_unmeasured_without_the_driver(artifact: Artifact) -> None:
    facts = planned(artifact, Launch("shared", (4, 1, 1), (128, 1, 1), (2, 1, 1), 0))
    fact = facts.get("theoretical_occupancy", CaseSubject(Case("kernels", "s"), kernel="shared", arch="sm_90a"))
    assert fact is not None and fact.value is None and "driver" in fact.note


def test_narrow_accesses_to_neighbors_and_indexed_constants_are_counted() -> None:
    lines = [
        "LDG.E R0, desc[UR4][R2.64]", "LDG.E R1, desc[UR4][R2.64+0x4]", "LDG.E R5, desc[UR4][R2.64+0x100]",
        "LDG.E.64 R8, desc[UR4][R6.64]", "LDG.E.64 R10, desc[UR4][R6.64+0x4]",  # 4 bytes apart, 8 wide
        "LDG.E.128 R12, [R2.64+0x10]", "LDG.E.128 R16, [R2.64+0x20]",
        "STG.E.U8 desc[UR4][R2.64+-0x1], R7", "STG.E.U8 desc[UR4][R2.64], R8", "STG.E.U8 desc[UR4][R4.64+0x1], R9",
        "LDC R4, c[0x3][R5]", "LDC.64 R6, c[0x0][0x210]",
    ]  # fmt: skip
    listing = '\t.section\t.text.k,"ax"\n.text.k:\n'
    listing += "".join(f"        /*{16 * i:04x}*/                   {line} ;\n" for i, line in enumerate(lines))
    counts = sass_counts(listing)["k"]
    assert (counts["sass_split_ldg"], counts["sass_split_stg"], counts["sass_indexed_ldc"]) == (2, 2, 1)
    separate_blocks = listing.replace("        /*0010*/", ".L_x_1:\n        /*0010*/")  # another basic block
    assert sass_counts(separate_blocks)["k"]["sass_split_ldg"] == 0
