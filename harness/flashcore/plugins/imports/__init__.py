"""Nsight Compute reports as run records."""

from flashcore.model.plugin import Plugin

PLUGIN = Plugin(
    name="imports",
    commands={"import": "flashcore.plugins.imports.command"},
)
