"""How Sphinx makes the site from the documents; `make site`."""

import gc

import nodeagent

gc.disable()  # all documents stay in memory as trees, and looking for garbage in them takes a fifth of the time

project = "nodeagent"
author = "The nodeagent authors"
project_copyright = "The nodeagent authors. Apache License 2.0"
version = release = nodeagent.__version__
html_last_updated_fmt = None
language = "en"

extensions = ["myst_parser"]
source_suffix = {".md": "markdown"}
myst_heading_anchors = 4
# Blocks are what people type and what programs print; no lexer knows both.
highlight_language = "text"
nitpicky = True

html_theme = "furo"
html_title = f"nodeagent {version}"
html_static_path = ["site/static"]
html_css_files = ["site.css"]
templates_path = ["site/templates"]
html_copy_source = False
html_show_sphinx = False
html_theme_options = {
    "light_css_variables": {"color-brand-primary": "#1b5e8c", "color-brand-content": "#1b5e8c"},
    "dark_css_variables": {"color-brand-primary": "#7cc0ee", "color-brand-content": "#7cc0ee"},
}
html_sidebars = {
    "**": [
        "sidebar/brand.html",
        "sidebar/search.html",
        "sidebar/scroll-start.html",
        "sidebar/navigation.html",
        "sidebar/scroll-end.html",
        "sidebar/versions.html",
    ]
}
