"""Phases of a kernel over time, by warp role, from markers in its source."""

from flashcore.model.plugin import Plugin

PLUGIN = Plugin(
    name="phases",
    commands={"phases": "flashcore.features.phases.command"},
    help={"phases": "record what each warp of a marked kernel does over time"},
)
