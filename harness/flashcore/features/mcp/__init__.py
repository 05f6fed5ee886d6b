"""Serves the commands as tools to programs that write kernels, through the Model Context Protocol."""

from flashcore.model.plugin import Plugin

PLUGIN = Plugin(
    name="mcp",
    commands={"mcp": "flashcore.features.mcp.command"},
    help={"mcp": "serve the commands as tools to a program that writes kernels (MCP, stdio)"},
)
