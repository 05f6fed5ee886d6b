"""Times and compares the present tree against a git revision."""

from flashcore.model.plugin import Plugin

PLUGIN = Plugin(
    name="against",
    options={name: f"flashcore.plugins.against.{name}_options" for name in ("bench", "diff")},
)
