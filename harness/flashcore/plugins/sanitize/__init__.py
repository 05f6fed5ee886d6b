"""Runs variants under compute-sanitizer: a command, and a stage of ``profile --sanitize``."""

from flashcore.model.plugin import Plugin

PLUGIN = Plugin(
    name="sanitize",
    commands={"sanitize": "flashcore.plugins.sanitize.command"},
    help={"sanitize": "run every variant under compute-sanitizer"},
    groups={"sanitize": "measure"},
    options={"profile": "flashcore.plugins.sanitize.profile_option"},
)
