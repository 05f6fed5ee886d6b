"""A launcher of recorded kernels: cubins and a plan instead of host code."""

from flashcore.model.plugin import Plugin

_OPTION = "flashcore.plugins.launcher.option"
PLUGIN = Plugin(name="launcher", options=dict.fromkeys(("check", "bench", "profile"), _OPTION))
