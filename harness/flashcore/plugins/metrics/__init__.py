"""Lists chips' metrics, and writes their tables."""

from flashcore.model.plugin import Plugin

PLUGIN = Plugin(
    name="metrics",
    commands={"metrics": "flashcore.plugins.metrics.command"},
    help={"metrics": "which metrics a chip has, under which names"},
    groups={"metrics": "explain"},
)
