"""Packs a run into one file."""

from flashcore.model.plugin import Plugin

PLUGIN = Plugin(
    name="pack",
    commands={"pack": "flashcore.plugins.pack.command"},
    help={"pack": "write a recorded run as one file, for --records elsewhere"},
    groups={"pack": "share"},
)
