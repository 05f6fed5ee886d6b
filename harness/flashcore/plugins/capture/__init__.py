"""The GPU work of any command or Python function as a run record."""

from flashcore.model.plugin import Plugin

PLUGIN = Plugin(
    name="capture",
    commands={"capture": "flashcore.plugins.capture.command"},
    help={"capture": "run any command under ncu; record its costly kernels"},
    groups={"capture": "measure"},
    api={name: f"flashcore.plugins.capture.api:{name}" for name in ("capture", "captured", "sweep")},
)
