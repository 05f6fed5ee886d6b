"""Compares two runs, revisions or files, and times revisions against each other: the command ``compare``, ``bench
--against``, the page *Compare* and the API's function ``compare``."""

from flashcore.model.plugin import Plugin

PLUGIN = Plugin(
    name="compare",
    commands={"compare": "flashcore.features.compare.command"},
    help={"compare": "what changed between two runs, git revisions or compiled files"},
    options={"bench": "flashcore.features.compare.bench_options"},
    pages={"compare": "flashcore.features.compare.page:page"},
    api={name: f"flashcore.features.compare.api:{name}" for name in ("compare", "ComparedRuns")},
)
