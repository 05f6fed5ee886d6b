"""Audits compiled CUDA code in wheels, libraries, objects, fatbins and cubins, without building or running it."""

from flashcore.model.plugin import Plugin

PLUGIN = Plugin(
    name="audit",
    commands={"audit": "flashcore.features.audit.command"},
    help={"audit": "check the kernels in wheels, libraries, fatbins and cubins"},
    api={"audit": "flashcore.features.audit.command:audit"},
    pages={"index": "flashcore.features.audit.page:page"},
    facts={
        name: f"flashcore.features.audit.causes:{name.upper()}"
        for name in (
            "code_bytes",
            "constant_bytes",
            "occupancy_low",
            "occupancy_high",
            "native_kernels",
            "sass_tensor",
            "sass_tma",
            "sass_128",
        )
    },
    causes={
        code: f"flashcore.features.audit.causes:{kind}"
        for code, kind in {
            "damaged_code": "DAMAGED",
            "needs_package": "NEEDS_PACKAGE",
            "code_too_large": "TOO_LARGE",
            "format_not_read": "NOT_READ",
            "no_device_code": "NO_DEVICE_CODE",
            "not_compiled": "NOT_COMPILED",
            "spills_unlisted": "SPILLS_UNLISTED",
        }.items()
    },
)
