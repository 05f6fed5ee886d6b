"""Records on disk, with all that a record can have."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path
from typing import Any

from flashcore.model.case import Case
from flashcore.model.causes import CodeChanged
from flashcore.model.record import (
    CaseKey,
    CaseSubject,
    CountedInstruction,
    Facts,
    Listing,
    Origin,
    Record,
    Roof,
    SharingGpu,
    Source,
)
from flashcore.records import store
from tests import factory


def full() -> Record:
    """A record in which every field holds something."""
    made = factory.record()
    return dataclasses.replace(
        made,
        keys={
            Case("fast", "mission"): CaseKey("a", "b", "13.0.88"),
            Case("cudnn", "mission"): CaseKey("", "", "", is_reference=True),
        },
        stale={Case("slow", "mission"): CodeChanged("device")},
        outcomes=tuple(o for o in made.outcomes if o.case != Case("slow", "mission")),  # nothing stale was taken over
        raw_samples={key: times for key, times in made.samples.items() if key[0] != Case("slow", "mission")},
        facts=Facts(
            f for f in made.facts if f.subject.case != Case("slow", "mission") or f.source is not Source.EVENTS
        ),
        joined=(Origin("20260101T000000Z-0000", "NVIDIA H200", "sm_90a", "3 facts"),),
        gpus=(
            SharingGpu(
                "GPU-a",
                None,
                1755.0,
                61.0,
                ("power_cap",),
                {"bench": (Case("fast", "mission"),)},
                roofs=(Roof("dram", 4500.0, "GB/s", "measured", "NVIDIA H200", None, "on GPU-a"),),
            ),
            SharingGpu("GPU-b", "node2", None, None, (), {}, "lost: no CUDA GPU"),
        ),
        listings=(
            Listing(
                CaseSubject(Case("fast", "mission"), kernel="fast_kernel"),
                (
                    CountedInstruction(
                        0, "LDG.E R2, [R4]", "fast.cu", 12, "x = in[i];", {"samples": 7.0, "stall_wait": 2.0}
                    ),
                    CountedInstruction(
                        16,
                        "FADD R2, R2, R3",
                        "tile.cuh",
                        2,
                        "sum += x;",
                        {"executed": 64.0},
                        (("tile.cuh", 8, "add(x);"), ("fast.cu", 12, "x = in[i];")),
                    ),
                    CountedInstruction(32, "EXIT", "", 0, "", {}),
                ),
                {"fast.cu": "// fast\n", "tile.cuh": "// tile\n"},
            ),
        ),
    )


def change_header(folder: Path, **changes: Any) -> None:
    """Overwrites fields of a recorded run's header."""
    path = folder / store.HEADER
    data = json.loads(path.read_bytes())
    data.update(changes)
    path.write_text(json.dumps(data), encoding="utf-8")
    store.seal(folder)


def whole(folder: Path) -> Record:
    """A run, all of it: listings are read when somebody looks at them."""
    result = store.read(folder)
    len(result.listings)
    return result
