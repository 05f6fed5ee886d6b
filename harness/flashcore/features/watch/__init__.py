"""The inner loop: answers the four questions after each save, in processes that stay open."""

from flashcore.model.plugin import Plugin

PLUGIN = Plugin(
    name="watch",
    commands={"watch": "flashcore.features.watch.command"},
    help={"watch": "answer the four questions after each save: budgets, right, faster, limited by"},
)
