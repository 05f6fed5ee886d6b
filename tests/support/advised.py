"""Records with chosen counters, for advice."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from flashcore.gate.expand import PLANNED
from flashcore.model.catalogue import FACTS
from flashcore.model.record import Facts, Launch, Plan, Record, Value
from tests import factory

KERNEL = "fast_kernel"
Values = dict[str, Value | None]
#: A kernel of a full grid without any defect that static facts show.
SOUND: Values = {
    "registers": 64, "spill_store_bytes": 0, "spill_load_bytes": 0, "stack_bytes": 0, "static_smem": 0,
    "local_memory": "none", "compiler_warnings": 0, "sass_hmma": 64, "sass_hgmma": 0, "sass_ffma": 64, "sass_bar": 4,
    "sass_ldg": 8, "sass_ldg_128": 8, "sass_ldgsts": 8, "sass_utmaldg": 0, "sass_stg": 4, "sass_stg_128": 4,
    "sass_lds": 64, "sass_sts": 8, "sass_ldsm": 32, "sass_local_loop": 0, "sass_split_ldg": 0, "sass_split_stg": 0,
    "sass_atom": 0, "sass_mufu": 0, "sass_indexed_ldc": 0,
    "threads": 256, "blocks": 1056, "blocks_per_sm": 4, "theoretical_occupancy": 50.0, "occupancy_limiter": "registers",
    "smem": 33792, "dynamic_smem": 33792,
}  # fmt: skip


def record(values: Values, *, gpu: bool = True) -> Record:
    """A run of the usual suite in which the variant fast has one kernel with these facts on sm_90a."""
    facts = []
    for name, value in (SOUND | values).items():
        planned = "mission" if name in PLANNED | {"occupancy_limiter"} else None
        static = FACTS[name].group == "static"
        at: dict[str, Any] = {"arch": "sm_90a", "kernel": KERNEL, "shape": planned} if static else {"shape": "mission"}
        facts.append(factory.fact(name, value, "fast", **at))
    bare = factory.bare_record()
    block, smem = SOUND | values, int((SOUND | values)["dynamic_smem"] or 0)
    launch = Launch(KERNEL, (int(block["blocks"] or 1), 1, 1), (int(block["threads"] or 1), 1, 1), (1, 1, 1), smem)
    environment = factory.environment() if gpu else factory.environment(gpu=None)
    plans = (Plan("fast", "mission", (launch,), 0),)
    return replace(bare, facts=Facts(facts), environment=environment, plans=plans)


COUNTED: Values = {"ncu_duration": 10_000, "isolated_p50": 10.0, "issue_active": 20.0, "elapsed_cycles": 19_800,
                   "instructions_issued": 0.2 * 4 * 132 * 19_800 * 0.9, "kernel_launches": 1}  # fmt: skip


def stall(reason: str, share: float = 60.0) -> Values:
    return {**COUNTED, f"stall_share_{reason}": share}
