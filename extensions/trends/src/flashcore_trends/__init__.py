"""Trends: what got slower over the recorded runs, since which commit, and whether the kernel or the machine did it."""

from flashcore.model.plugin import Plugin

PLUGIN = Plugin(
    name="trends",
    commands={"trends": "flashcore_trends.command"},
    pages={"trends": "flashcore_trends.page:page"},
    help={"trends": "what got slower over the recorded runs, and since which commit"},
)
