"""Publishing a run, and the page of all runs."""

from flashcore.model.plugin import Plugin

PLUGIN = Plugin(
    name="history",
    commands={"publish": "flashcore.plugins.history.publish"},
    help={"publish": "pack a run to commit it; draw the page of all runs"},
    groups={"publish": "share"},
)
