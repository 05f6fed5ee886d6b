"""Phases: markers in sources, the code that belongs to them, and the samples that ncu took of that code."""

from __future__ import annotations

import csv
import io
import math
import re
import subprocess
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from flashcore.build import build
from flashcore.cli import list as list_command
from flashcore.errors import UsageError
from flashcore.machine import toolchain
from flashcore.model.case import Case
from flashcore.model.catalogue import FACTS, PHASE_SHARE
from flashcore.model.record import Built, CaseSubject, Facts
from flashcore.model.settings import Settings
from flashcore.readers import sass, spills
from flashcore.readers.ncu import raw_page
from flashcore.readers.ncu.results import EXECUTED, SAMPLES, Result
from flashcore.readers.phases import Code, Sources, of_code, of_lines, of_variant
from flashcore.stages.context import Context
from flashcore.stages.profile import code as profiled_code
from flashcore.stages.profile import ncu_facts
from flashcore.stages.profile.ncu_facts import CaseBuild as BuiltCase
from tests import factory
from tests.conftest import TESTS
from tests.recorded import RECORDED

DATA = TESTS / "data"
SOURCE = (DATA / "phases.cu").read_text()


# --- markers ------------------------------------------------------------------------------------


def test_a_marker_opens_a_phase_up_to_the_next_or_the_end_of_the_function() -> None:
    lines = dict(zip(SOURCE.splitlines(), of_lines(SOURCE), strict=False))
    assert lines["  __shared__ float tile[128];"] == ""
    assert lines["  tile[threadIdx.x] = fetch(in);"] == lines["  __syncthreads();"] == "load"
    assert lines["  const float y = exp2f(x);"] == "compute"
    assert lines["  out[threadIdx.x] = y;"] == "other"
    assert next(phase for line, phase in lines.items() if "plain" in line) == ""


NAMES = st.from_regex(r"[a-z][a-z0-9_]{0,12}", fullmatch=True)
MARKERS = st.builds(
    lambda name, before, inside, after: (f"{before}//{inside}phase:{inside}{name}{after}", name),
    NAMES, st.sampled_from(["", "  ", "\t"]), st.sampled_from([" ", "  "]), st.sampled_from(["", " ", "\r"]),
)  # fmt: skip
CODE = st.sampled_from(
    ["", "  x += 1;", "  }", "  // the phase: it is in words", "x(); // phase: load", "// phase: two words", "{", "//"]
)
ENDS = st.sampled_from(["}", "}  // namespace", "};"])


@given(st.lists(st.one_of(MARKERS, CODE, ENDS), max_size=30))
def test_any_source_is_split_by_its_markers_alone(parts: list[str | tuple[str, str]]) -> None:
    expected, phase = [], ""
    for part in parts:
        phase = part[1] if isinstance(part, tuple) else phase
        expected.append(phase)
        if isinstance(part, str) and part.startswith("}"):
            phase = ""
    text = "\n".join(part if isinstance(part, str) else part[0] for part in parts)
    assert of_lines(text) == (tuple(expected) if parts else ("",))


@pytest.mark.parametrize("name", ["Softmax", "P·V", "1st", "soft-max", "load,"])
def test_what_is_no_name_is_refused_with_its_place(name: str) -> None:
    with pytest.raises(UsageError, match=r"k\.cu:2: expected the name of a phase .*found"):
        of_lines(f"void f() {{\n  // phase: {name}\n}}", "k.cu")


# --- code ---------------------------------------------------------------------------------------

LISTING = """
.text.k:
\t//## File "/suite/k.cu", line 3
        /*0000*/                   LDC R1, c[0x0][0x28] ;
\t//## File "/suite/h.cuh", line 1 inlined at "/suite/k.cu", line 2
\t//## File "/suite/k.cu", line 2
        /*0010*/                   S2R R5, SR_CTAID.Y ;
.L_x_0:
        /*0020*/              @!P0 BRA `(.L_x_0) ;
\t//## File "/cuda/mma.hpp", line 91 inlined at "/suite/h.cuh", line 2
\t//## File "/suite/h.cuh", line 2 inlined at "/suite/k.cu", line 3
\t//## File "/suite/k.cu", line 3
        /*0030*/                   HMMA.16816.F32 R4, R8, R12, R4 ;
        /*0040*/                   EXIT ;
        .weak           $__internal_0_$__cuda_sm20_rcp_rn
$__internal_0_$__cuda_sm20_rcp_rn:
        /*0050*/                   RET.REL.NODEC R2 `(k) ;
\t//## File "/suite/k.cu", line 2
.L_x_1:
        /*0060*/                   BRA `(.L_x_1);
        /*0070*/                   NOP;
"""
PLACES = {"/suite/k.cu": ("", "load", "scores"), "/suite/h.cuh": ("", "own")}


def test_the_innermost_marked_line_decides() -> None:
    assert of_code(sass.parse(LISTING)["k"], lambda file: PLACES.get(file, ())) == {
        0x00: "scores", 0x10: "load", 0x20: "load", 0x30: "own", 0x40: "own",
        0x50: "other",  # added by the compiler: nothing is known of it
        0x60: "other",  # where warps are seen that have left
        0x70: "load",
    }  # fmt: skip


def test_a_source_without_a_marker_has_no_phases(tmp_path: Path) -> None:
    (tmp_path / "k.cu").write_text("\n\n\n")
    assert of_variant("k.cu", LISTING, Sources(tmp_path)) is None
    assert of_variant("k.cu", None, Sources(tmp_path)) is None


def test_without_a_disassembler_the_phases_are_known_but_not_their_code(tmp_path: Path) -> None:
    marked = ("load", "other", "scores", "load")
    (tmp_path / "k.cu").write_text("\n".join(f"// phase: {name}" for name in marked))
    code = of_variant("k.cu", None, Sources(tmp_path))
    assert code is not None and code.names == ("load", "scores", "other")
    assert not code.kernels and "nvdisasm" in code.why


@pytest.fixture(scope="module")
def listing(whole_cuda_headers: None, tmp_path_factory: pytest.TempPathFactory) -> str:
    """The disassembler's text of the real compiler's code."""
    disassembler = toolchain.optional_tool("nvdisasm")
    if disassembler is None:
        pytest.skip("tool: no nvdisasm on this machine")
    try:
        nvcc = toolchain.find_nvcc()
    except Exception as error:
        pytest.skip(f"tool: no nvcc: {error}")
    cubin = tmp_path_factory.mktemp("phases") / "variant.cubin"
    options = ["-O3", "--use_fast_math", "-lineinfo", "-cubin", "-arch=sm_90a"]
    subprocess.run([nvcc.path, *options, DATA / "phases.cu", "-o", cubin], check=True)
    done = subprocess.run([disassembler, "-c", "-gi", cubin], check=True, capture_output=True, text=True)
    return done.stdout


INSTRUCTION = re.compile(r"/\*([0-9a-f]{4})\*/\s+(?:@\S+\s+)?([A-Z][A-Z0-9._]*)")


def test_real_code_by_phase(listing: str) -> None:
    code = of_variant("phases.cu", listing, Sources(DATA))
    assert code is not None and code.names == ("load", "compute", "bend", "other")
    opcodes = {int(offset, 16): opcode for offset, opcode in INSTRUCTION.findall(_of("marked", listing))}
    results = {opcode: code.kernels["marked"][offset] for offset, opcode in opcodes.items()}
    assert results["LDG.E"] == results["STS"] == results["BAR.SYNC.DEFER_BLOCKING"] == "load"
    assert results["MUFU.SIN"] == "bend"
    assert results["MUFU.EX2"] == results["LDS"] == "compute"
    assert results["STG.E"] == results["EXIT"] == "other"
    assert set(code.kernels["plain"].values()) == {"other"}


def _of(kernel: str, listing: str) -> str:
    return listing.partition(f"\n.text.{kernel}:")[2].partition("\n//-----")[0]


def test_a_source_that_has_moved_since_is_found_by_its_tail(listing: str) -> None:
    moved = listing.replace(str(DATA), "/elsewhere/before")
    assert of_variant("phases.cu", moved, Sources(DATA)) == of_variant("phases.cu", listing, Sources(DATA))


def test_the_line_of_a_spill_is_the_innermost_one() -> None:
    code = LISTING.replace("HMMA.16816.F32 R4, R8, R12, R4", "STL [R1+0x8], R4")
    (site,) = spills.sites(sass.parse(code)["k"])
    assert (site.file, site.line) == ("/cuda/mma.hpp", 91)


def test_the_line_maps_what_was_built_for_its_gpu(tmp_path: Path) -> None:
    """One variant marks phases, one gives a name that is none, one marks nothing; references have no code here."""
    lines = {"slow": "// phase: Load\n", "fast": "\n// phase: load\n// phase: scores\n", "split": "\n"}
    messages: list[str] = []
    suite = factory.suite(root=str(tmp_path), archs=("sm_90a",))
    built = []
    for artifact in factory.artifacts(suite):
        folder = tmp_path / "build" / artifact.variant
        folder.mkdir(parents=True)
        source = suite.variants[artifact.variant].kind.file
        (tmp_path / source).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / source).write_text(lines[artifact.variant])
        (folder / "variant.sass").write_text(LISTING.replace("/suite/k.cu", str(tmp_path / source)))
        built.append(replace(artifact, cubin=str(folder / "variant.cubin")))
    context = Context(
        Settings("x"),
        suite,
        None,
        "sm_90a",
        build.Options(),
        (),
        (),
        built=Built("13.0.88", tuple(built), ()),
        say=messages.append,
    )
    code_of = profiled_code.codes(context)
    result = {variant: code for variant in suite.variants if (code := code_of(variant))}
    assert set(result) == {"slow", "fast"}
    assert result["fast"].names == ("load", "scores", "other")
    assert result["fast"].kernels["k"][0x10] == "load"
    assert "expected the name of a phase" in result["slow"].why and not result["slow"].kernels
    assert len(messages) == 1 and "slow without its phases" in messages[0]


# --- samples ------------------------------------------------------------------------------------


def recorded() -> tuple[Result, dict[int, tuple[str, int]]]:
    """A launch as ncu's raw page has it; address → instruction and samples, as its source page has them."""
    (row,) = raw_page.parse((RECORDED / "ncu_raw_samples.csv").read_bytes().decode()).rows
    page = csv.reader(io.StringIO((RECORDED / "ncu_source_samples.csv").read_bytes().decode()))
    next(page)
    return row, {int(address, 16): (sass.strip(), int(samples)) for address, sass, samples in page}


CASE = CaseSubject(Case("v", "s"))


def facts_of(rows: list[Result], code: Code | None, refused: Mapping[str, str] | None = None) -> Facts:
    return Facts(ncu_facts.facts_of(CASE, rows, chip="gh100", refused=refused, built=BuiltCase(code=code)))


def shares(row: Result, code: Code, refused: Mapping[str, str] | None = None) -> dict[str, tuple[float | None, str]]:
    facts = facts_of([row], code, refused)
    results = {}
    for phase in code.names:
        fact = facts.get(PHASE_SHARE + phase, CASE)
        assert fact is not None and fact.unit == "pct" and fact.source == "ncu"
        results[phase] = fact.number, fact.note
    return results


def phase_of(sass: str) -> str:
    return "tensor" if "HMMA" in sass else "memory" if re.match(r"(@!?P\d )?(LD|ST)", sass) else "other"


def test_recorded_samples_are_those_of_the_source_page() -> None:
    row, page = recorded()
    start = min(page)
    code = Code(
        ("tensor", "memory", "other"), {"gemm_v0": {a - start: phase_of(sass) for a, (sass, _) in page.items()}}
    )
    wanted = dict.fromkeys(code.names, 0)
    for text, samples in page.values():
        wanted[phase_of(text)] += samples
    assert sum(wanted.values()) == row.read(SAMPLES).value == 605 and min(wanted.values()) > 0
    result = shares(row, code)
    for phase, samples in wanted.items():
        assert result[phase][0] == pytest.approx(100 * samples / 605)
    p = wanted["tensor"] / 605
    error = 100 * math.sqrt(p * (1 - p) / 605)  # of a share of 605 independent samples
    assert result["tensor"][1] == f"605 warp samples, standard error {error:.1f} points"
    assert 0.5 < error < 3


def row(
    samples: Mapping[int, int],
    executed: Mapping[int, int],
    *,
    kernel: str = "k",
    total: int | None = None,
    more: Mapping[str, str] | None = None,
) -> Result:
    def cell(of: Mapping[int, int], total: int, form: str) -> str:
        return f"{total} ({'; '.join(f'{a:{form}}: {n}' for a, n in of.items())})" if of else str(total)

    cells = {
        SAMPLES: cell(samples, sum(samples.values()) if total is None else total, "d"),
        EXECUTED: cell(executed, sum(executed.values()), "#x"),
        "gpu__time_duration.sum": "1000",
    }
    units = {"gpu__time_duration.sum": "ns"}
    return Result(0, kernel, "kernel", (1, 1, 1), (32, 1, 1), (9, 0), raw_page.Cells(cells | dict(more or {}), units))


START = 0x7F1543BBD00
OWN = {0x00: "load", 0x10: "load", 0x20: "softmax", 0x30: "other"}
CODE_OF_K = Code(("load", "softmax", "other"), {"k": OWN})
WHOLE = {START + offset: 8 for offset in OWN}


@given(st.dictionaries(st.sampled_from(sorted(OWN)), st.integers(1, 10**6), min_size=1))
def test_every_sample_counts_to_one_phase(counts: dict[int, int]) -> None:
    result = shares(row({START + o: n for o, n in counts.items()}, WHOLE), CODE_OF_K)
    assert math.fsum(value or 0 for value, _ in result.values()) == pytest.approx(100)
    for phase in CODE_OF_K.names:
        of_phase = sum(n for o, n in counts.items() if OWN[o] == phase)
        assert result[phase][0] == pytest.approx(100 * of_phase / sum(counts.values()))


SAMPLED = {START: 3, START + 0x20: 1}


@pytest.mark.parametrize(
    ("given", "why"),
    [
        (row({}, WHOLE), "no warp was sampled"),
        (row({START + 0x40: 3}, WHOLE), "an instruction at 0x40 in the kernel"),
        (row({START + 0x50: 3, START + 0x40: 1}, WHOLE), "an instruction at 0x40 in the kernel"),  # the first
        (row(SAMPLED, {START - 0x10: 8} | WHOLE), "an instruction at 0x40 in the kernel"),
        (row(SAMPLED, {}), "gives the kernel's start"),
        (row(SAMPLED, WHOLE, total=9), "do not add up to its total 9"),
        (row(SAMPLED, WHOLE, kernel="another"), "the kernel another is not in the variant's code"),
    ],
)
def test_what_cannot_be_told_apart_is_unmeasured_and_says_why(given: Result, why: str) -> None:
    for value, note in shares(given, CODE_OF_K).values():
        assert value is None and why in note


def test_a_listing_counts_by_instruction_and_names_the_users_innermost_line(tmp_path: Path) -> None:
    """Code inlined from a foreign header belongs to the calling line."""
    (tmp_path / "k.cu").write_text("// phase: load\nload(x);\nmma(a, b);\n")
    (tmp_path / "h.cuh").write_text("one\ntwo\n")
    code = of_variant("k.cu", LISTING, Sources(tmp_path))
    assert code is not None
    addresses = [START + i.offset for i in code.listing["k"]]
    waits = {"smsp__pcsamp_warps_issue_stalled_wait": f"3 ({addresses[3]}: 3)"}
    given = row({addresses[3]: 5, addresses[1]: 2}, dict.fromkeys(addresses, 8), more=waits)
    (listing,) = ncu_facts.listings(CASE, [given, given], code)
    assert listing.subject == replace(CASE, kernel="k")
    rows = {i.offset: i for i in listing.instructions}
    assert rows[0x30].values == {"samples": 10, "executed": 16, "stall_wait": 6}
    assert (rows[0x30].text, rows[0x30].file, rows[0x30].line, rows[0x30].source) == (
        "HMMA.16816.F32 R4, R8, R12, R4", "h.cuh", 2, "two"
    )  # fmt: skip
    assert rows[0x30].calls == (("k.cu", 3, "mma(a, b);"),)
    assert listing.files == {name: (tmp_path / name).read_text() for name in ("h.cuh", "k.cu")}
    assert (rows[0x10].file, rows[0x10].line, rows[0x00].source) == ("h.cuh", 1, "mma(a, b);")
    assert "samples" not in rows[0x00].values  # none was taken there: that is not said to be one


def test_what_cannot_be_told_apart_has_no_listing(tmp_path: Path) -> None:
    (tmp_path / "k.cu").write_text("// phase: load\nload(x);\nmma(a, b);\n")
    code = of_variant("k.cu", LISTING, Sources(tmp_path))
    assert code is not None and ncu_facts.listings(CASE, [row({START: 3}, {START - 0x100: 1})], code) == []


def test_a_refusal_or_a_missing_disassembler_is_the_reason() -> None:
    requested = row(SAMPLED, WHOLE)
    refused = shares(requested, CODE_OF_K, refused={SAMPLES: "Failed to find metric"})
    assert all(value is None and "Failed to find metric" in note for value, note in refused.values())
    unread = shares(requested, Code(("load", "other"), why="nvdisasm was not there"))
    assert all(result == (None, "nvdisasm was not there") for result in unread.values())


def test_shares_of_several_kernels_are_weighted_by_their_time() -> None:
    code = Code(("load", "softmax", "other"), {"k": OWN, "second": dict.fromkeys(OWN, "softmax")})
    slower = row(SAMPLED, WHOLE, kernel="second", more={"gpu__time_duration.sum": "3000"})
    facts = facts_of([row(SAMPLED, WHOLE), slower], code)
    second = replace(CASE, kernel="second")
    assert facts.number("phase_share_load", CASE) == pytest.approx(75 / 4)
    assert facts.number("phase_share_softmax", CASE) == pytest.approx((25 + 3 * 100) / 4)
    assert facts.number("phase_share_softmax", second) == 100


def test_nobody_marks_nobody_asks() -> None:
    assert SAMPLES not in ncu_facts.metrics_to_request("gh100")
    assert SAMPLES in ncu_facts.metrics_to_request("gh100", sampled=True)
    assert SAMPLES not in ncu_facts.metrics_to_request("gh100", [SAMPLES], sampled=True)
    names = {f.name for f in facts_of([row(SAMPLED, WHOLE)], None)}
    assert not any(name.startswith(PHASE_SHARE) for name in names)


def test_the_catalogue_knows_the_share_of_any_phase() -> None:
    assert FACTS["phase_share_softmax"].unit == "pct" and FACTS["phase_share_softmax"].tier == "counters"
    assert "phase_share_" not in FACTS and "phase_share_P·V" not in FACTS
    assert not any(name.startswith(PHASE_SHARE) for name in FACTS)
    assert "phase_share_<phase>" in list_command.facts_table()
