"""Others' reports and programs as run records: imports ncu's reports and traces, captures commands and functions."""

from flashcore.model.plugin import Plugin

PLUGIN = Plugin(
    name="reports",
    commands={name: f"flashcore.plugins.reports.{name}_command" for name in ("import", "capture")},
    help={
        "import": "read ncu reports (.ncu-rep, CSV) or traces into a run",
        "capture": "run any command under ncu; record its costly kernels",
    },
    pages={"index": "flashcore.plugins.reports.page:page"},
    api={name: f"flashcore.plugins.reports.api:{name}" for name in ("import_report", "capture", "captured", "sweep")},
    facts={
        "traced_duration": "flashcore.plugins.reports.traces:SPEC",
        "traced_launches": "flashcore.plugins.reports.traces:COUNT_SPEC",
    },
)
