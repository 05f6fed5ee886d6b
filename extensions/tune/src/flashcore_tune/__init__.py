"""Searches a space of configs: candidates are built and gated without a GPU, then checked and timed on one.

``space`` declares and numbers the points, ``search`` lets Optuna propose them, ``candidates`` gates and measures them,
``finalists`` decides and offers the winner as a variant, ``results`` shows a study.
"""

from flashcore.model.plugin import Plugin

PLUGIN = Plugin(
    name="tune",
    commands={"tune": "flashcore_tune.command"},
    help={"tune": "search a space of configs"},
)
