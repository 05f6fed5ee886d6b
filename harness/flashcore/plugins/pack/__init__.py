"""Runs as one file, to transport them."""

from flashcore.model.plugin import Plugin

PLUGIN = Plugin(
    name="pack",
    commands={"pack": "flashcore.plugins.pack.command"},
    help={"pack": "write a recorded run as one file, for --records elsewhere"},
    groups={"pack": "share"},
)
