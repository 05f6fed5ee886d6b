"""Signatures of recorded runs by SSH keys."""

from flashcore.model.plugin import Plugin

PLUGIN = Plugin(
    name="signatures",
    commands={"sign": "flashcore.plugins.signatures.command"},
    help={"sign": "sign a recorded run (default: the newest) with an SSH key; the gate says who signed it"},
    options={"gate": "flashcore.plugins.signatures.gate_options"},
)
