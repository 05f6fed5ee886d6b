"""Lists the limits that a change loosens since a base revision: budgets, waivers, rules, baseline, selections."""

from flashcore.model.plugin import Plugin

PLUGIN = Plugin(name="base", options={name: f"flashcore.features.base.{name}_options" for name in ("gate", "audit")})
