"""The history of published runs, and the page of all runs."""

from flashcore.model.plugin import Plugin

PLUGIN = Plugin(
    name="history",
    commands={"publish": "flashcore.plugins.history.publish"},
    help={"publish": "add a run to the history; draw the page of all runs"},
    groups={"publish": "share"},
)
