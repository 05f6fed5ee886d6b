"""The gate's formats for code hosts and CI services."""

from flashcore.model.plugin import Plugin

PLUGIN = Plugin(
    name="formats",
    formats={
        "junit": "flashcore.plugins.formats.junit:render",
        "sarif": "flashcore.plugins.formats.sarif:render",
        "gitlab": "flashcore.plugins.formats.gitlab:render",
        "github": "flashcore.plugins.formats.github:render",
    },
)
