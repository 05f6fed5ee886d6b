"""Nsight Compute reports as run records."""

from flashcore.model.plugin import Plugin

PLUGIN = Plugin(
    name="imports",
    commands={"import": "flashcore.plugins.imports.command"},
    help={"import": "read reports of Nsight Compute (.ncu-rep, or CSV pages of one) into a run record"},
)
