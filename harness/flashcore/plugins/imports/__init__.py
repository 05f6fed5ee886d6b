"""Nsight Compute reports and traces as run records."""

from flashcore.model.plugin import Plugin

PLUGIN = Plugin(
    name="imports",
    commands={"import": "flashcore.plugins.imports.command"},
    help={"import": "read reports of Nsight Compute (.ncu-rep, CSV) or traces (torch.profiler, nsys) into a run"},
    pages={"index": "flashcore.plugins.imports.page:page"},
    facts={
        "traced_duration": "flashcore.plugins.imports.traces:SPEC",
        "traced_launches": "flashcore.plugins.imports.traces:COUNT_SPEC",
    },
)
