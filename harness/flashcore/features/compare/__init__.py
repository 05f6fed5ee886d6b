"""Compares two runs, revisions or files, and times revisions against each other: the commands ``compare`` and
``bisect``, ``bench --against``, the page *Compare* and the API's function ``compare``."""

from flashcore.model.plugin import Plugin

PLUGIN = Plugin(
    name="compare",
    commands={"compare": "flashcore.features.compare.command", "bisect": "flashcore.features.compare.bisect"},
    help={
        "compare": "what changed between two runs, git revisions or compiled files",
        "bisect": "find the commit that made a case slower",
    },
    options={"bench": "flashcore.features.compare.bench_options"},
    pages={"compare": "flashcore.features.compare.page:page"},
    api={name: f"flashcore.features.compare.api:{name}" for name in ("compare", "ComparedRuns")},
)
