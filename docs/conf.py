"""Configuration of Sphinx for ``make docs``."""

import json
import posixpath
import re
import sys
from datetime import UTC, datetime
from pathlib import Path

from docutils import nodes
from sphinx.application import Sphinx
from sphinx.util import logging

sys.path.insert(0, str(Path(__file__).parent.parent))

from deploy.release.build import epoch
from deploy.version import version as exact_version

project = "Ringward"
author = "The Ringward authors"
version = release = exact_version()
html_title = f"Ringward {version}"
# The date of the man pages.
today = f"{datetime.fromtimestamp(epoch(), UTC):%Y-%m-%d}"
html_theme = "furo"
html_copy_source = False
html_show_copyright = False
highlight_language = "none"
smartquotes = False
man_pages = [
    ("reference/cli", "ringward", "run scheduled tasks and always-on services", author, 1),
    ("reference/configuration", "ringward.toml", "configuration of Ringward", author, 5),
]

_PAGE = re.compile(r"([\w./-]+)\.rst(#[\w-]+)?")


def _link_pages(app: Sphinx, tree: nodes.document, name: str) -> None:
    """Lead links such as ``runs.rst``, which code hosts understand, to the page; a bare name becomes its title."""
    for link in list(tree.findall(nodes.reference)):
        found = _PAGE.fullmatch(link.get("refuri", ""))
        if found is None:
            continue
        path, anchor = found.groups(default="")
        page = posixpath.normpath(posixpath.join(posixpath.dirname(name), path))
        if page not in app.env.found_docs:
            logging.getLogger(__name__).warning("there is no page %s.rst", page, location=link)
            continue
        if posixpath.basename(link.astext()) == f"{posixpath.basename(page)}.rst":
            link.clear()
            link += nodes.inline("", app.env.titles[page].astext(), classes=["doc"])
        if app.builder.name == "man":  # which would print the address behind the text
            link.replace_self(link.children)
            continue
        link["refuri"] = app.builder.get_relative_uri(name, page) + anchor
        link["internal"] = True


def _recipes(tree: nodes.document) -> list[dict[str, str]]:
    """Return the sections of a page: title, anchor, other names from a comment such as ``.. index: daily restart``."""
    found = []
    for section in tree.findall(
        lambda node: isinstance(node, nodes.section) and isinstance(node.parent, nodes.section)
    ):
        title = next(section.findall(nodes.title)).astext()
        comments = [comment.astext() for comment in section.findall(nodes.comment)]
        names = [comment.removeprefix("index: ") for comment in comments if comment.startswith("index: ")]
        texts = [paragraph.astext() for paragraph in section.findall(nodes.paragraph)]
        found.append(
            {"title": title, "anchor": section["ids"][0], "names": " ".join([title, *names]), "text": " ".join(texts)}
        )
    return found


def _show_recipes(app: Sphinx, page: str, *_: object) -> None:
    """Let the search page load the recipes."""
    if page == "search":
        app.add_js_file("recipes.js")


def _write_recipes(app: Sphinx, error: Exception | None) -> None:
    """Write the recipes for the search page, and the code that shows them."""
    if error is None and app.builder.name == "html":
        recipes = json.dumps(_recipes(app.env.get_doctree("how-to")))
        code = (Path(__file__).parent / "search_recipes.js").read_text()
        (Path(app.outdir) / "_static" / "recipes.js").write_text(f"const recipes = {recipes};\n{code}")


def _link_keys(app: Sphinx, tree: nodes.document, _name: str) -> None:
    """Turn each key with an anchor into a link to itself, so that readers can copy its address."""
    if app.builder.name == "man":
        return
    for entry in tree.findall(nodes.entry):
        for paragraph in entry.children:
            if isinstance(paragraph, nodes.paragraph) and paragraph["ids"]:
                link = nodes.reference("", "", *paragraph.children, refuri=f"#{paragraph['ids'][0]}", internal=True)
                paragraph.children = []
                paragraph += link


def _list_tables(app: Sphinx, tree: nodes.document, _name: str) -> None:
    """Turn tables into lists on man pages, where wide tables do not fit: the first cell, then the others."""
    for table in list(tree.findall(nodes.table)) if app.builder.name == "man" else ():
        heads = [entry.astext() for head in table.findall(nodes.thead) for entry in head.findall(nodes.entry)]
        found = nodes.definition_list()
        for row in next(table.findall(nodes.tbody)).children:
            first, *others, last = row.children
            facts = nodes.paragraph()
            for head, entry in zip(heads[1:], others, strict=False):
                facts += [nodes.Text(f"{'; ' if facts.children else ''}{head}: "), *_inline(entry)]
            body = nodes.definition("", *([facts] if others else []), *last.children)
            found += nodes.definition_list_item("", nodes.term("", "", *_inline(first)), body)
        table.replace_self(found)


def _inline(entry: nodes.Node) -> list[nodes.Node]:
    """Return the content of the paragraphs of a cell."""
    return [child for paragraph in entry.findall(nodes.paragraph) for child in paragraph.children]


def setup(app: Sphinx) -> None:
    """Register the handlers; Sphinx calls this."""
    app.connect("doctree-resolved", _link_pages)
    app.connect("doctree-resolved", _link_keys)
    app.connect("doctree-resolved", _list_tables)
    app.connect("html-page-context", _show_recipes)
    app.connect("build-finished", _write_recipes)
