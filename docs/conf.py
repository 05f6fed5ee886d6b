"""How the documentation is built: `make docs`, strictly and without a network."""

from __future__ import annotations

import sys
from pathlib import Path

HERE = Path(__file__).parent
sys.path[:0] = [str(HERE.parent / "harness"), str(HERE.parent), str(HERE / "_ext")]

import flashcore  # noqa: E402  # the tree beside this folder, whatever is installed

project = "FlashCore"
version = release = flashcore.__version__
extensions = ["myst_parser", "sphinx.ext.autodoc", "sphinx.ext.napoleon", "generated_reference"]
exclude_patterns = ["_build"]
myst_enable_extensions = ["deflist", "colon_fence"]
myst_heading_anchors = 3
nitpicky = True
# Types of other packages are not linked to: that would need the network.
nitpick_ignore_regex = [("py:.*", r"(?!flashcore).*"), ("py:class", r"flashcore\.(?!api).*")]
autodoc_member_order = "bysource"
autodoc_typehints = "description"
html_theme = "furo"
html_extra_path = ["SKILL.md", "llms.txt"]  # for programs, served as they are
html_title = f"FlashCore {version}"
html_theme_options = {"top_of_page_buttons": []}
