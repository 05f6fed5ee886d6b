"""The what-if picture: its points lie on its stairs, and it says what the words beside it say."""

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
from flashcore.report.occupancy_chart import BOTTOM, LEFT, RIGHT, TOP, charts


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
