"""Launch plans of foreign CUDA launchers, recorded without a GPU."""

from flashcore.model.plugin import Plugin

PLUGIN = Plugin(name="recorded", plans={"recorded": "flashcore.features.recorded.launchers"})
