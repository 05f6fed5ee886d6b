"""The memory chart: widths by bytes, fills by share, each way only where counters show it."""

from __future__ import annotations

import re
from dataclasses import replace
from itertools import pairwise
from xml.etree import ElementTree

import pytest
from hypothesis import given
from hypothesis import strategies as st

from flashcore.chips import occupancy
from flashcore.explain.explain import Step
from flashcore.model.record import Subject
from flashcore.report import drawings
from flashcore.report.drawings import BOTTOM, LEFT, RIGHT, TOP, charts

ONE_WAY = {
    "shared_wavefronts": 1e5, "shared_busy": 34.0, "bank_conflicts": 10.0, "l1_bytes": 2e6, "l1_hit": 12.0,
    "l2_bytes": 8e6, "l2_throughput": 50.0, "l2_hit": 80.0, "dram_read_bytes": 6e6, "dram_write_bytes": 3e6,
    "dram_throughput": 90.0,
}  # fmt: skip
BOTH_WAYS = {
    **ONE_WAY, "shared_load_wavefronts": 6e4, "shared_store_wavefronts": 4e4, "global_load_bytes": 1.5e6,
    "global_store_bytes": 5e5, "l2_read_bytes": 14e6, "l2_write_bytes": 4e6,
    **dict.fromkeys(("tma_read_bytes", "tma_write_bytes", "cluster_bytes"), 0.0),
    "atomic_bytes": 0.0, "reduction_bytes": 0.0,
}  # fmt: skip
HOPPER = {**BOTH_WAYS, "tma_read_bytes": 10e6, "cluster_bytes": 1e6, "atomic_bytes": 1e6}
Element = ElementTree.Element


def drawn(values: dict[str, float], **options: bool) -> tuple[list[Element], list[Element], list[str]]:
    """The arrows' shafts and fills, and the words."""
    parts = list(ElementTree.fromstring(drawings.memory("fast/mission", values.get, None, **options).svg).iter())
    of_class = [[e for e in parts if (e.get("class") or "").split()[:1] == [name]] for name in ("link", "share")]
    return of_class[0], of_class[1], [e.text or "" for e in parts if e.tag == "text"]


def size(element: Element, name: str) -> float:
    return float(element.get(name, "nan"))


def test_reads_and_writes_are_separate_arrows_as_wide_as_their_bytes_and_filled_by_the_links_share() -> None:
    links, shares, words = drawn(BOTH_WAYS)
    assert len(links) == 8 and {"14.00 MB read", "4.000 MB written", "60,000 passes read"} <= set(words)
    widths = [size(e, "width") for e in links]
    assert widths[4] == max(widths), "of the 14 MB that L2 gives"
    assert widths[6] / widths[4] == pytest.approx(6 / 14, rel=0.02)  # a tenth of a pixel
    assert widths[0] / widths[4] == pytest.approx(6e4 * 128 / 14e6, rel=0.02)
    filled = [size(f, "height") / size(e, "height") for e, f in zip(links, shares, strict=True)]
    assert filled == pytest.approx([0.34, 0.34, 0, 0, 0.5, 0.5, 0.9, 0.9], abs=0.01)
    assert [" unknown" in (e.get("class") or "") for e in links] == [False] * 2 + [True] * 2 + [False] * 4
    starts = [
        (size(f, "y") == size(e, "y"), size(f, "y") + size(f, "height")) for e, f in zip(links, shares, strict=True)
    ]
    assert [from_above for from_above, _ in starts[4:]] == [False, True, False, True], "reads rise, writes fall"


def test_tma_clusters_and_atomics_appear_where_counters_show_them() -> None:
    links, _, words = drawn(HOPPER)
    text = " | ".join(words)
    for name in ("TMA 10.00 MB read", "cluster", "1.000 MB atomics", "3.000 MB read", "3.000 MB written"):
        assert name in text, "what takes another way is not L1's"
    below_shared = [e for e in links if size(e, "x") < 150 and 150 < size(e, "y") < 276]
    assert len(below_shared) == 2, "TMA goes from L2 to shared memory"
    assert not {"cluster", "TMA", "atomics"} & set(" ".join(drawn(BOTH_WAYS)[2]).split())


def test_without_the_counters_of_each_direction_there_is_one_arrow_for_both() -> None:
    links, _, words = drawn(ONE_WAY, tma=True)
    assert len(links) == 5 and {"8.000 MB both ways", "TMA unmeasured", "100,000 passes both ways"} <= set(words)
    links, _, words = drawn({})
    assert not links and "unmeasured" in words and "0 B" not in " ".join(words)


def step(arch: str, threads: int, registers: int, smem: int, cluster: int = 1) -> Step:
    given = (arch, threads, registers, smem, 0, cluster)
    subject = Subject("fast", arch, "mission", "kernel")
    return Step(subject, threads, registers, smem, occupancy.occupancy(*given), occupancy.what_if(*given))


def pictures(of: Step) -> list[ElementTree.Element]:
    return list(ElementTree.fromstring(str(charts(of))))


def corners(path: str) -> list[tuple[float, float]]:
    """The corners of a path of one M and any V and H."""
    found: list[tuple[float, float]] = []
    for word, numbers in re.findall(r"([MVH])([\d. ]+)", path):
        values = [float(n) for n in numbers.split()]
        x, y = found[-1] if found else (0.0, 0.0)
        found.append((values[0], values[1]) if word == "M" else (x, values[0]) if word == "V" else (values[0], y))
    return found


def on(path: str, x: float, y: float) -> bool:
    points = corners(path)
    return any(
        min(a, c) - 0.11 <= x <= max(a, c) + 0.11 and min(b, d) - 0.11 <= y <= max(b, d) + 0.11
        for (a, b), (c, d) in pairwise(points)
    )


@given(st.sampled_from(sorted(occupancy.LIMITS)), st.integers(1, 1024), st.integers(1, 255), st.integers(0, 99 * 1024))
def test_its_points_lie_on_its_stairs(arch: str, threads: int, registers: int, smem: int) -> None:
    shown = step(arch, threads, registers, smem)
    for picture in pictures(shown):
        paths = {p.get("class"): p.get("d", "") for p in picture.iter("path") if p.get("class") != "grid"}
        for path in paths.values():
            assert all(LEFT <= x <= RIGHT and TOP <= y <= BOTTOM for x, y in corners(path))
        points = {c.get("class"): (float(c.get("cx", "")), float(c.get("cy", ""))) for c in picture.iter("circle")}
        now = points.pop("now")
        assert on(paths["step"], *now), (paths["step"], now)
        for x, y in points.values():  # the next step
            assert x <= now[0] and y < now[1]
            assert on(paths["alone"], x, y), (paths["alone"], x, y)


def test_it_says_where_the_kernel_stands_and_what_the_next_block_takes() -> None:
    registers, smem = pictures(step("sm_90a", 256, 96, 32 * 1024))
    assert registers.get("aria-label") == "96 registers: 2 blocks per SM; 80 registers for 3 blocks"
    assert smem.get("aria-label") == "32 KiB of shared memory: 2 blocks per SM"
    assert [t.text for t in registers.iter("text") if "mark" in t.get("class", "")] == ["next: 80", "now: 96"]
    assert [t.text for t in smem.iter("text") if "mark" in t.get("class", "")] == ["now: 32"]


def test_a_launch_that_fails_stands_at_zero() -> None:
    _, smem = pictures(step("sm_89", 128, 64, 124 * 1024))
    assert (smem.get("aria-label") or "").startswith("124 KiB of shared memory: 0 blocks per SM; 99 KiB")
    (now,) = [c for c in smem.iter("circle") if c.get("class") == "now"]
    assert float(now.get("cy", "")) == BOTTOM


SHOWN = step("sm_90a", 128, 64, 0)


@pytest.mark.parametrize(
    "shown",
    [
        step("sm_90a", 128, 64, 0, cluster=2),
        step("sm_30", 128, 64, 0),
        replace(SHOWN, then=None),
        replace(SHOWN, subject=Subject("fast", None, "mission", "kernel")),
    ],
)
def test_what_is_unmeasured_has_no_picture(shown: Step) -> None:
    assert charts(shown) == ""
