"""Others' reports and programs as run records: imports ncu's reports and traces, captures commands and functions."""

from flashcore.model.plugin import Plugin

PLUGIN = Plugin(
    name="reports",
    commands={name: f"flashcore.features.reports.{name}_command" for name in ("import", "capture")},
    help={
        "import": "read ncu reports, traces or JSON of benchmarks into a run",
        "capture": "run any command under ncu; record its costly kernels",
    },
    pages={"index": "flashcore.features.reports.page:page"},
    api={
        name: f"flashcore.features.reports.api:{name}"
        for name in ("import_report", "capture", "captured", "counters", "sweep")
    },
    facts={
        "traced_duration": "flashcore.features.reports.traces:SPEC",
        "traced_launches": "flashcore.features.reports.traces:COUNT_SPEC",
    },
    causes={
        f"capture_{kind}": f"flashcore.features.reports.activity:{kind.upper()}"
        for kind in ("no_cupti", "cupti_failed", "records_dropped", "nothing_recorded", "only_ncu")
    }
    | {"capture_stopped": "flashcore.features.reports.capture:Stopped"},
)
