"""The gate's formats for code hosts and CI services."""

from flashcore.model.plugin import Plugin

PLUGIN = Plugin(
    name="formats",
    formats={
        "junit": "flashcore.features.formats.junit:render",
        "sarif": "flashcore.features.formats.sarif:render",
        "gitlab": "flashcore.features.formats.gitlab:render",
        "github": "flashcore.features.formats.github:render",
    },
)
