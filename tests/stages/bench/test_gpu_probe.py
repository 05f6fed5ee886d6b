"""GPUs that time side by side: which of them are unfit, and its child on the CPU."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from flashcore.model.cause import Cause
from flashcore.model.causes import MESSAGE
from flashcore.runner.pool import Pool
from flashcore.runner.process import LocalGpu
from flashcore.runner.program import Limits
from flashcore.stages.bench import gpu_probe
from flashcore.stages.bench.gpu_probe import Probe, unfit

pytestmark = pytest.mark.usefixtures("forked")


def took(copy: float = 780.0, matmul: float = 200.0, spread: float = 0.002, **state: Any) -> Probe:
    return Probe({"copy": copy, "matmul": matmul}, spread, state)


@pytest.mark.parametrize(
    ("results", "named"),
    [
        ([took(), took(781.2, 198.1)], {}),
        ([took(), took(830.0)], {1: "slow: copy takes 830 µs, 6.4 % more"}),
        ([took(), took(830.0, spread=0.05)], {}),  # within what the same call differs by
        ([took(), took(), took(700.0)], {}),  # a fast one makes the others not slow
        ([took(), took(matmul=230.0), took()], {1: "slow: matmul takes 230 µs, 15.0 % more"}),
        ([took(), took(throttle=["power_cap"])], {}),
        ([took(throttle=["power_cap", "thermal_hardware"]), took()], {0: "throttled: thermal_hardware"}),
        ([took(throttle=["power_brake"]), took(throttle=["power_brake"])], {}),  # nowhere to move to
        ([MESSAGE("killed by SIGSEGV"), took()], {0: "its probe failed: killed by SIGSEGV"}),
        ([MESSAGE("no"), MESSAGE("no")], {}),
    ],
)
def test_who_is_unfit_to_time(results: list[Probe | Cause], named: dict[int, str]) -> None:
    why = unfit({f"GPU-{i}": gpu_probes for i, gpu_probes in enumerate(results)})
    assert why.keys() == {f"GPU-{i}" for i in named}
    assert all(why[f"GPU-{i}"].startswith(text) for i, text in named.items())


def test_each_gpu_times_it_in_a_process_of_its_own(tmp_path: Path) -> None:
    places = [LocalGpu("GPU-a"), LocalGpu("GPU-b")]
    result = gpu_probe.run(Pool(places), tmp_path, Limits(), "cpu")
    assert list(result) == ["GPU-a", "GPU-b"]
    for gpu_probes in result.values():
        assert (
            isinstance(gpu_probes, Probe)
            and gpu_probes.times.keys() == {"copy", "matmul"}
            and min(gpu_probes.times.values()) > 0
            and gpu_probes.spread >= 0
        )
    assert gpu_probe.recorded(tmp_path) == result == gpu_probe.run(Pool(places), tmp_path, Limits(), "cpu")
    assert len(list(tmp_path.rglob("child-*.log"))) == 2, "what is answered is not timed again"
