"""Configuration of Sphinx for ``make docs``."""

import re
import sys
from pathlib import Path

from docutils import nodes
from sphinx.application import Sphinx
from sphinx.util import logging

sys.path.insert(0, str(Path(__file__).parent.parent))

from supervisor.version import VERSION

project = "Ringward"
author = "The Ringward authors"
version = release = VERSION
html_title = f"Ringward {VERSION}"
html_theme = "furo"
html_copy_source = False
html_show_copyright = False
highlight_language = "none"
smartquotes = False

_PAGE = re.compile(r"([\w-]+)\.rst(#[\w-]+)?")


def _link_pages(app: Sphinx, tree: nodes.document, name: str) -> None:
    """Lead links such as ``runs.rst``, which code hosts understand, to the page; a bare name becomes its title."""
    for link in tree.findall(nodes.reference):
        found = _PAGE.fullmatch(link.get("refuri", ""))
        if found is None:
            continue
        page, anchor = found.groups(default="")
        if page not in app.env.found_docs:
            logging.getLogger(__name__).warning("there is no page %s.rst", page, location=link)
            continue
        link["refuri"] = app.builder.get_relative_uri(name, page) + anchor
        link["internal"] = True
        if link.astext() in (f"{page}.rst", f"docs/{page}.rst"):
            link.clear()
            link += nodes.inline("", app.env.titles[page].astext(), classes=["doc"])


def _link_keys(_app: Sphinx, tree: nodes.document, _name: str) -> None:
    """Turn each key with an anchor into a link to itself, so that readers can copy its address."""
    for entry in tree.findall(nodes.entry):
        for paragraph in entry.children:
            if isinstance(paragraph, nodes.paragraph) and paragraph["ids"]:
                link = nodes.reference("", "", *paragraph.children, refuri=f"#{paragraph['ids'][0]}", internal=True)
                paragraph.children = []
                paragraph += link


def setup(app: Sphinx) -> None:
    """Register the handlers; Sphinx calls this."""
    app.connect("doctree-resolved", _link_pages)
    app.connect("doctree-resolved", _link_keys)
