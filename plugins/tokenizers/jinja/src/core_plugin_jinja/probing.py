"""Forms of message content that a template expects, as its source tells."""

from __future__ import annotations

from jinja2 import nodes

from core.api.templates import ContentFormat


def content_format(tree: nodes.Template) -> ContentFormat:
    """Return `openai` for a template that goes through the parts of a content."""
    named = _names_of_content(tree)
    loops = any(_reads_content(loop.iter, named) for loop in tree.find_all(nodes.For))
    return "openai" if loops else "string"


def asks_for_none(tree: nodes.Template) -> bool:
    """Whether a template has a branch for a content that is none: some write calls there and nowhere else."""
    named = _names_of_content(tree)
    negated = {id(one.node) for one in tree.find_all(nodes.Not)}
    tests = (one for one in tree.find_all(nodes.Test) if one.name == "none" and id(one) not in negated)
    return any(_reads_content(one.node, named) for one in tests)


def asks_for_text(tree: nodes.Template) -> bool:
    """Whether a template asks if a content is a text; elsewhere it may take for granted that one is."""
    named = _names_of_content(tree)
    return any(one.name == "string" and _reads_content(one.node, named) for one in tree.find_all(nodes.Test))


def _names_of_content(tree: nodes.Template) -> set[str]:
    """Return the variables that hold a content."""
    named = {"content"}
    for assignment in tree.find_all(nodes.Assign):
        if isinstance(assignment.target, nodes.Name) and _reads_content(assignment.node, named):
            named.add(assignment.target.name)
    return named


def _reads_content(node: nodes.Node, named: set[str]) -> bool:
    if isinstance(node, nodes.Getattr):
        return node.attr == "content"
    if isinstance(node, nodes.Getitem):
        return isinstance(node.arg, nodes.Const) and node.arg.value == "content"
    return isinstance(node, nodes.Name) and node.name in named
