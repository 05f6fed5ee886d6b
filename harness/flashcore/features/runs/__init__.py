"""The recorded runs: lists, packs and removes them; their facts over time; the page *History*."""

from flashcore.model.plugin import Plugin

PLUGIN = Plugin(
    name="runs",
    commands={"runs": "flashcore.features.runs.command"},
    help={"runs": "list the recorded runs; `runs pack` writes one as a file, `runs prune` removes old ones"},
    pages={"history": "flashcore.features.runs.page:page"},
    api={"runs": "flashcore.features.runs.command:runs", "history": "flashcore.features.runs.command:history"},
)
