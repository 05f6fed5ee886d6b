"""Times git revisions against each other: ``bench --against REV``, and ``bisect``, which finds the first slow one."""

from flashcore.model.plugin import Plugin

PLUGIN = Plugin(
    name="regress",
    commands={"bisect": "flashcore.features.regress.bisect"},
    help={"bisect": "find the commit that made a case slower"},
    options={"bench": "flashcore.features.regress.bench_options"},
)
