"""A contract of import-linter: extensions import no module of FlashCore that a page does not name.

The first column of that page's table names the modules; ``flashcore.model.*`` are all of a package.
"""

from __future__ import annotations

import re
from pathlib import Path

from grimp import ImportGraph
from importlinter import Contract, ContractCheck, fields, output


def named(page: str) -> list[str]:
    """The modules that the page names."""
    return [name for row in re.findall(r"(?m)^\| (`flashcore\b.*?) \|", page) for name in re.findall(r"`(.+?)`", row)]


def is_named(module: str, names: list[str]) -> bool:
    """Whether these names include a module."""
    packages = (name.removesuffix("*") for name in names if name.endswith(".*"))
    return module in names or f"{module}.".startswith(tuple(packages))


class PublicModules(Contract):
    """Every root package but the first is an extension.

    Args:
        page: the path of the page, from the current folder.
    """

    type_name = "public_modules"
    page = fields.StringField()

    def check(self, graph: ImportGraph, verbose: bool) -> ContractCheck:
        page = str(self.page)
        names = named(Path(page).read_text(encoding="utf-8"))
        wrong = [
            f"{page}: expected modules, found no {name}"
            for name in names
            if name.removesuffix(".*") not in graph.modules
        ]
        _, *extensions = self.session_options["root_packages"]
        for extension in extensions:
            ours = {extension, *graph.find_descendants(extension)}
            for module in sorted(ours):
                for imported in sorted(graph.find_modules_directly_imported_by(module) - ours):
                    if not is_named(imported, names):
                        lines = graph.get_import_details(importer=module, imported=imported)
                        where = ", ".join(str(line["line_number"]) for line in lines)
                        wrong.append(f"{module}:{where}: expected a module that {page} names, found {imported}")
        return ContractCheck(kept=not wrong, metadata={"wrong": wrong})

    def render_broken_contract(self, check: ContractCheck) -> None:
        for line in check.metadata["wrong"]:
            output.print_error(line, bold=False)
