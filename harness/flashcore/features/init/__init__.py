"""Writes a new suite to fill in."""

from flashcore.model.plugin import Plugin

PLUGIN = Plugin(
    name="init",
    commands={"init": "flashcore.features.init.command"},
    help={"init": "write a new suite to fill in"},
)
