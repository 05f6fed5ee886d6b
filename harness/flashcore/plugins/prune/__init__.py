"""Removes old runs and builds."""

from flashcore.model.plugin import Plugin

PLUGIN = Plugin(
    name="prune",
    commands={"prune": "flashcore.plugins.prune.command"},
    help={"prune": "remove old runs and builds; without --yes only list them"},
    groups={"prune": "share"},
)
