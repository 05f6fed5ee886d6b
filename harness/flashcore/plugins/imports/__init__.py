"""Nsight Compute reports and traces as run records."""

from flashcore.model.plugin import Plugin

PLUGIN = Plugin(
    name="imports",
    commands={"import": "flashcore.plugins.imports.command"},
    help={"import": "read ncu reports (.ncu-rep, CSV) or traces into a run"},
    groups={"import": "measure"},
    pages={"index": "flashcore.plugins.imports.page:page"},
    api={"import_report": "flashcore.plugins.imports.api:import_report"},
    facts={
        "traced_duration": "flashcore.plugins.imports.traces:SPEC",
        "traced_launches": "flashcore.plugins.imports.traces:COUNT_SPEC",
    },
)
