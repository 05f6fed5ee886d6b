"""Tables of the metrics that chips have, and how they are made."""

from flashcore.model.plugin import Plugin

PLUGIN = Plugin(
    name="metrics",
    commands={"metrics": "flashcore.plugins.metrics.command"},
    help={"metrics": "which metrics a chip has, under which names"},
    groups={"metrics": "explain"},
)
