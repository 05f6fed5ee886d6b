"""The history of published runs, and the page of all runs."""

from flashcore.model.plugin import Plugin

PLUGIN = Plugin(
    name="history",
    commands={"publish": "flashcore.plugins.history.publish"},
    help={"publish": "put a run's times into profiles/history.csv; draw the page of all runs and their history"},
)
