"""The differences between two runs: the command, the page and the API's function ``compare``."""

from flashcore.model.plugin import Plugin

PLUGIN = Plugin(
    name="compare",
    commands={"compare": "flashcore.features.compare.command"},
    help={"compare": "what changed between two runs, git revisions or compiled files"},
    pages={"compare": "flashcore.features.compare.page:page"},
    api={name: f"flashcore.features.compare.differences:{name}" for name in ("compare", "ComparedRuns")},
)
