"""``bench --energy``: joules of a call and FLOP per joule, by NVML's counter of the GPU's energy."""

from flashcore.model.plugin import Plugin

_INTERVALS = ("energy", "energy_above_idle", "flop_per_joule")

PLUGIN = Plugin(
    name="energy",
    options=dict.fromkeys(("bench", "profile"), "flashcore.features.energy.option"),
    measurements={"energy": "flashcore.features.energy.measure:measure"},
    facts={
        name: f"flashcore.features.energy.facts:{name}"
        for name in ("power", "power_idle", *(n + end for n in _INTERVALS for end in ("", "_low", "_high")))
    },
    causes={"power_disagrees": "flashcore.features.energy.facts:POWER_DISAGREES"},
    pages={"energy": "flashcore.features.energy.page:page"},
)
