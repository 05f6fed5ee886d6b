"""A record with all that a report can show, and the report's pages as parsed."""

from __future__ import annotations

import base64
import dataclasses
import gzip
import json
import re
from datetime import date
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

from flashcore.model.case import Case
from flashcore.model.causes import MESSAGE, CodeChanged, CompileFailed, DidNotCompile
from flashcore.model.record import (
    Artifact,
    CaseOutcome,
    CaseSubject,
    CountedInstruction,
    Facts,
    Listing,
    Origin,
    Record,
    Roof,
)
from flashcore.model.suite import Prediction
from flashcore.report.overview_page import COLUMNS
from tests import factory
from tests.support.judged import rendered

TODAY = date(2026, 1, 2)


class Page(HTMLParser):
    """A parsed page: ids, addresses, scripts, and the cells of its tables."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.ids: list[str] = []
        self.links: list[str] = []
        self.scripts: list[str] = []
        self.rows: list[list[tuple[str, str, str]]] = []  # (class, title, text)
        self.text: list[str] = []
        self.keys: list[str] = []  # of the columns
        self._open = False
        self._in_script = False
        self.feed(text)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        given = {k: v or "" for k, v in attrs}
        self._in_script = tag == "script"
        if "id" in given:
            self.ids.append(given["id"])
        if tag == "script":
            self.scripts.append("")
        for name in ("href", "src"):
            if name in given:
                self.links.append(given[name])
        if tag == "tr":
            self.rows.append([])
        if "data-key" in given:
            self.keys.append(given["data-key"])
        if tag in ("td", "th") and self.rows:
            self.rows[-1].append((given.get("class", ""), given.get("title", ""), ""))
            self._open = True

    def handle_endtag(self, tag: str) -> None:
        self._in_script = False
        if tag in ("td", "th"):
            self._open = False

    def handle_data(self, data: str) -> None:
        if self._in_script:
            self.scripts[-1] += data
            return
        self.text.append(data)
        if self._open:
            cls, title, text = self.rows[-1][-1]
            self.rows[-1][-1] = (cls, title, text + data)

    @property
    def words(self) -> str:
        """All text, with single spaces."""
        return " ".join(" ".join(self.text).split())

    def row(self, name: str) -> list[tuple[str, str, str]]:
        """The first row whose first cell reads so."""
        return next(r for r in self.rows if r and r[0][2].split()[:1] == [name])

    def cells(self, name: str) -> dict[str, tuple[str, str, str]]:
        """The overview's table at its first shape: the cells of one variant by the keys of their columns."""
        keys = self.keys[: len(COLUMNS)]
        rows = (r for r in self.rows if len(r) == len(keys) and r[0][2].split()[:1] == [name])
        return dict(zip(keys, next(rows), strict=True))


def render(record: Record, folder: Path, *, single_file: bool = False) -> dict[str, str]:
    """The pages' texts by path; what a single file has packed, unpacked."""
    pages = rendered(record, folder, today=TODAY, single_file=single_file)
    return {p.relative_to(folder.resolve()).as_posix(): unpacked(p.read_text(encoding="utf-8")) for p in pages}


def data(text: str, name: str) -> dict[str, Any]:
    """The data of that name that a page embeds for a script; empty if it has none."""
    match = re.search(rf'id="{name}-data">([^<]*)</script>', text)
    return dict(json.loads(html(match[1]))) if match else {}


def html(packed: str) -> str:
    return gzip.decompress(base64.b64decode(packed)).decode()


def unpacked(text: str) -> str:
    def section(results: re.Match[str]) -> str:
        return f'<section class="page" id="{results[1]}" data-title="{results[2]}">{html(results[3])}</section>'

    packed = (
        r'<script type="text/plain" class="packed page" data-anchor="([^"]*)" data-title="([^"]*)">([^<]*)</script>'
    )
    folded = r'<script type="text/plain" class="packed (\w+)"([^>]*)>([^<]*)</script>'
    text = re.sub(packed, section, text)
    return re.sub(folded, lambda x: f'<template class="{x[1]}"{x[2]}>{html(x[3])}</template>', text)


def full() -> Record:
    """A record with a bit of everything: failures, stale cases, waivers, goals, predictions, measured roofs."""
    variants = [
        factory.variant("slow", roof="fp32"),
        factory.variant(
            "fast",
            parent="slow",
            config={"M": 32},
            predictions=(
                Prediction("isolated_p50", 221.0, 100.0, "us", "FlashCore design 001", "L4", "mission"),
                Prediction("registers", None, 96.0, "1", "FlashCore design 000"),
                Prediction("phase_share_softmax", None, 45.0, "pct", "FlashCore design 001", "L4", "mission"),
            ),
        ),
        factory.variant("split", parent="fast"),
        factory.variant("broken", archs=("sm_89", "sm_90a"), unsupported={"sm_80": "needs sm_89"}),
        factory.variant("wrong", parent="fast"),
        factory.reference("cudnn"),
    ]
    shapes = [factory.shape(), factory.shape("long", factory.LONG)]
    budgets = [
        factory.budget("registers", "few_registers", maximum=90),
        factory.budget("theoretical_occupancy", "occupancy", minimum=30),
        factory.goal("tensor_active", "tensor_goal", minimum=60),
        factory.goal("isolated_p50", "latency_l4", maximum=40, stretch=30, device="L4"),
    ]
    waivers = [factory.waiver("few_registers", 96, variants=("fast",), reason="two accumulators live at once")]
    suite = factory.suite(variants, shapes, budgets, waivers, baseline="slow")
    phases = {"phase_share_load": 12.5, "phase_share_softmax": 52.0, "phase_share_other": 35.5}
    record = factory.record(
        suite,
        [
            factory.fact("shared_efficiency", None, "fast", shape="mission", detail="not on GH100"),
            *factory.facts_of(phases, "fast", shape="mission"),
            factory.fact("phase_share_combine", None, "split", shape="mission", detail="ncu gave no samples"),
            factory.fact("phase_share_other", None, "split", shape="mission", detail="ncu gave no samples"),
        ],
    )
    gone = ("broken", "wrong")
    facts = [f for f in record.facts if f.subject.variant not in gone or f.name.startswith("formula")]
    return dataclasses.replace(
        record,
        facts=Facts(facts),
        artifacts=tuple(map(_failed, record.artifacts)),
        outcomes=tuple(map(_became, record.outcomes)),
        raw_samples={k: v for k, v in record.samples.items() if k[0].variant not in gone},
        stale={Case("split", "long"): CodeChanged("device")},
        joined=(Origin("20260101T000000Z-0001", factory.GPU, "sm_90a", "12 facts"),),
        roofs=(Roof("l2", 5500.0, "GB/s", "measured", "NVIDIA H200", note="read kernel"),),
    )


def _failed(a: Artifact) -> Artifact:
    if a.variant != "broken" or a.status != "ok":
        return a
    return dataclasses.replace(
        a, status="failed", cause=CompileFailed('k.cu(12): error: "foo<T>" is undefined\n1 error')
    )


def _became(o: CaseOutcome) -> CaseOutcome:
    if o.variant == "broken":
        return dataclasses.replace(o, status="skipped", cause=DidNotCompile("sm_90a"))
    if o.variant == "wrong":
        status = "failed" if o.stage == "check" else "skipped"
        return dataclasses.replace(o, status=status, cause=MESSAGE("NaN in the output"))  # type: ignore[arg-type]
    return o


LISTED = Listing(
    CaseSubject(Case("fast", "mission"), kernel="fast_kernel"),
    (
        CountedInstruction(0, "LDS R2, [R4]", "fast.cu", 12, "x = tile[i];",
                    {"samples": 70.0, "executed": 64.0, "stall_mio_throttle": 60.0, "wavefronts": 96.0,
                     "wavefronts_ideal": 32.0}),
        CountedInstruction(16, "STL [R1+0x8], R4", "fast.cu", 14, "y += x;", {"samples": 10.0, "executed": 8.0}),
        CountedInstruction(32, "FADD R2, R2, R3", "fast.cu", 14, "y += x;", {"samples": 20.0, "executed": 64.0},
                    (("fast.cu", 17, "add(y, x);"),)),
        CountedInstruction(48, "EXIT", "", 0, "", {}),
    ),
    {"fast.cu": "\n" * 11 + "  x = tile[i];\n  // sum\n  y += x;\n}\n\nadd(z, x);\n"},
)  # fmt: skip
