"""The list of recorded runs."""

from flashcore.model.plugin import Plugin

PLUGIN = Plugin(
    name="runs",
    commands={"runs": "flashcore.plugins.runs.command"},
    help={"runs": "list the recorded runs"},
    groups={"runs": "explain"},
    api={"runs": "flashcore.plugins.runs.command:runs", "history": "flashcore.plugins.runs.command:history"},
)
