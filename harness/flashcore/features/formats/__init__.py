"""The gate's formats for code hosts and CI services."""

from flashcore.model.plugin import Plugin

PLUGIN = Plugin(
    name="formats",
    formats={
        "junit": "flashcore.features.formats.junit:render",
        "github": "flashcore.features.formats.github:render",
    },
)
