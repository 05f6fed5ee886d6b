"""``flashcore bisect``: the first commit in which a case is slower."""

from flashcore.model.plugin import Plugin

PLUGIN = Plugin(
    name="bisect",
    commands={"bisect": "flashcore.plugins.bisect.command"},
    help={"bisect": "find the commit that made a case slower"},
    groups={"bisect": "judge"},
)
