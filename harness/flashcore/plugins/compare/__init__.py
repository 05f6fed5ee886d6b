"""The differences between two runs: the command ``diff``, the page *Compare* and the API's ``compare``."""

from flashcore.model.plugin import Plugin

PLUGIN = Plugin(
    name="compare",
    commands={"diff": "flashcore.plugins.compare.command"},
    help={"diff": "what changed between two runs or git revisions"},
    groups={"diff": "explain"},
    pages={"compare": "flashcore.plugins.compare.page:page"},
    api={name: f"flashcore.plugins.compare.differences:{name}" for name in ("compare", "ComparedRuns")},
)
