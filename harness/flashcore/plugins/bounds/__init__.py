"""Computes the least time that each resource allows."""

from flashcore.model.plugin import Plugin

PLUGIN = Plugin(
    name="bounds",
    commands={"bounds": "flashcore.plugins.bounds.command"},
    help={"bounds": "the least time each resource allows, for any known device"},
    groups={"bounds": "explain"},
)
