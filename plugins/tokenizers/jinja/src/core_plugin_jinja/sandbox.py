"""The sandbox of chat templates: what a template reaches, how long it runs, and how large its values grow.

Jinja's own sandbox keeps templates away from Python's inside; here every loop, call and growing value is metered too,
so that a template which was written to hang or to fill memory costs its own request.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from functools import wraps
from typing import Any, cast

from jinja2 import nodes
from jinja2.exceptions import SecurityError
from jinja2.ext import Extension, loopcontrols
from jinja2.parser import Parser
from jinja2.sandbox import ImmutableSandboxedEnvironment
from jinja2.utils import Namespace
from jinja2.visitor import NodeTransformer

from core_plugin_jinja.meter import spend

_MAX_REPEAT = 2**20
_MAX_CHARS = 2**24
_MAX_NODES = 2**20
_MAX_EFFORT = 2**26
_MAX_BITS = 4096
_CHARS_PER_STEP = 256
_SMALL = 4096
_NODES_PER_STEP = 64
_WIDE_FORMAT = re.compile(r"\d{5}|\*|:[^}{:]*\{")
_DROPPED_FILTERS = ("urlize", "wordwrap", "random", "xmlattr")
_CHEAP_FILTERS = frozenset({"length", "count", "first", "last", "default", "d"})
_DEEP_FILTERS = frozenset({"tojson", "string", "pprint", "join", "format", "urlencode", "sum", "escape", "e"})


class Sandbox(ImmutableSandboxedEnvironment):
    """Jinja as chat templates use it, metered."""

    intercepted_binops = frozenset({"*", "**", "%", "+"})

    def __init__(self, functions: Mapping[str, Any], filters: Mapping[str, Any]) -> None:
        super().__init__(
            trim_blocks=True,
            lstrip_blocks=True,
            extensions=[_Generation, loopcontrols],
            finalize=shallow,
            optimized=False,
        )
        for name in _DROPPED_FILTERS:
            del self.filters[name]
        self.filters.update(filters)
        for name, function in self.filters.items():
            self.filters[name] = _guarded(name, function)
        del self.globals["lipsum"]
        self.globals.update({"namespace": _Names, **functions})

    def build(self, tree: nodes.Template) -> Any:
        """Return the template of a syntax tree, with meters put in."""
        _Metering().visit(tree)
        code = self.compile(tree, name="chat template")
        return self.template_class.from_code(self, code, self.make_globals(None))

    def call(self, context: Any, obj: Any, /, *args: Any, **kwargs: Any) -> Any:
        """Call on behalf of a template."""
        if getattr(obj, "__self__", None) is self:
            return obj(*args)
        method = getattr(obj, "__wrapped__", obj)  # jinja wraps the methods that format
        owner = getattr(method, "__self__", None)
        if isinstance(owner, str):
            name = getattr(method, "__name__", "")
            if name.startswith("format") and _WIDE_FORMAT.search(owner):
                raise SecurityError("a chat template may not format with this width")
            _charge(owner, *args, *kwargs.values())
        found = super().call(context, obj, *args, **kwargs)
        return _bounded(found)

    def call_binop(self, context: Any, operator: str, left: Any, right: Any) -> Any:
        """Do `left operator right`, unless it is a way to make endless work."""
        if operator == "+" and type(left) is type(right) is str and len(left) + len(right) < _SMALL:
            return left + right  # nearly every one; what grows by it again and again is no longer small
        if operator == "**" or (operator == "%" and isinstance(left, str) and _WIDE_FORMAT.search(left)):
            raise SecurityError(f"operator {operator} is not available to chat templates in this form")
        if operator == "*":
            _check_product(left, right)
        if isinstance(left, (str, list, tuple)):
            _charge(left, right if operator == "%" else None)
        return _bounded(super().call_binop(context, operator, left, right))

    def tick(self) -> str:
        """Charge one turn of a loop, or one call of a macro."""
        spend()
        return ""

    def built(self, value: Any) -> Any:
        """Return a list or mapping that a template has just written, if it is not too large."""
        weigh(value)
        return value

    def joined(self, parts: list[Any]) -> str:
        """Return `a ~ b ~ c`."""
        texts = [part if type(part) is str else str(shallow(part)) for part in parts]
        return cast(str, _bounded("".join(texts)))


class _Names(Namespace):
    """A namespace whose text shows nothing of what it holds: that could be endless."""

    def __repr__(self) -> str:
        return "<namespace>"


class _Metering(NodeTransformer):
    """Puts a tick into every loop and macro, and a scale under every value that is put together."""

    def visit(self, node: nodes.Node, *args: Any, **kwargs: Any) -> Any:
        """Return the node with meters in it."""
        self.generic_visit(node)
        if isinstance(node, (nodes.For, nodes.Macro, nodes.CallBlock, nodes.Block)):
            node.body.insert(0, nodes.ExprStmt(_own("tick"), lineno=node.lineno))
        elif isinstance(node, nodes.Concat):
            return _own("joined", nodes.List(node.nodes, lineno=node.lineno))
        elif _is_made(node):
            return _own("built", node)
        return node


def _own(name: str, *arguments: Any) -> nodes.Call:
    """Return a call of a method of the sandbox."""
    line = arguments[0].lineno if arguments else 1
    return nodes.Call(nodes.EnvironmentAttribute(name, lineno=line), [*arguments], [], None, None, lineno=line)


def _is_made(node: nodes.Node) -> bool:
    """Whether a node writes a list or mapping that holds more than constants."""
    if isinstance(node, nodes.Tuple) and node.ctx != "load":
        return False
    if not isinstance(node, (nodes.List, nodes.Tuple, nodes.Dict)):
        return False
    return not all(isinstance(item, nodes.Const) for item in node.items)


def shallow(value: Any) -> Any:
    """Return a value that is about to become text, if it is not too large for that."""
    if not isinstance(value, str):
        weigh(value)
    return value


def weigh(value: Any) -> None:
    """Charge for everything inside a value, shared parts as often as they show. Raises `SecurityError`."""
    if not isinstance(value, (list, tuple, dict)):
        return
    count, stack = 0, [value]
    while stack:
        inner = stack.pop()
        items = [*inner.values()] if isinstance(inner, dict) else inner
        count += len(items)
        if count > _MAX_NODES:
            raise SecurityError(f"a chat template may not make a value of more than {_MAX_NODES} parts")
        stack.extend(item for item in items if isinstance(item, (list, tuple, dict)))
    spend(1 + count // _NODES_PER_STEP)


def _guarded(name: str, function: Callable[..., Any]) -> Callable[..., Any]:
    """Return a filter that refuses arguments from which it would make too much."""
    if name in _CHEAP_FILTERS:
        return function

    @wraps(function)
    def guarded(*args: Any, **kwargs: Any) -> Any:
        if len(args) == 1 and not kwargs and type(args[0]) is str and len(args[0]) < _SMALL:
            return function(args[0])
        if name in _DEEP_FILTERS:
            for value in args:
                weigh(value)
        if name == "format" and isinstance(args[0], str) and _WIDE_FORMAT.search(args[0]):
            raise SecurityError("a chat template may not format with this width")
        _charge(*args, *kwargs.values())
        return _bounded(function(*args, **kwargs))

    return guarded


def _charge(*values: Any) -> None:
    """Charge for what can be made of these values together, and refuse what is too much."""
    effort = 1
    for value in values:
        effort *= max(1, _span(value))
    if effort > _MAX_EFFORT:
        raise SecurityError("a chat template may not make a value of this size")
    spend(1 + effort // _CHARS_PER_STEP)


def _span(value: Any) -> int:
    if isinstance(value, (str, dict)):
        return len(value)
    if isinstance(value, (list, tuple)):
        return sum(len(item) if isinstance(item, str) else 1 for item in value)
    return abs(value) if isinstance(value, int) else 1


def _check_product(left: Any, right: Any) -> None:
    for value, times in ((left, right), (right, left)):
        if isinstance(value, (str, list, tuple)) and isinstance(times, int) and len(value) * times > _MAX_REPEAT:
            raise SecurityError("a chat template may not repeat a value this often")
    if isinstance(left, int) and isinstance(right, int) and left.bit_length() + right.bit_length() > _MAX_BITS:
        raise SecurityError("a chat template may not calculate with numbers of this size")


def _bounded(value: Any) -> Any:
    """Return a result, if it is not too large."""
    if type(value) is str and len(value) < _SMALL:
        return value
    if isinstance(value, str):
        _check_chars(len(value))
    else:
        weigh(value)
    return value


def _check_chars(count: int) -> None:
    if count > _MAX_CHARS:
        raise SecurityError(f"a chat template may not make a text of more than {_MAX_CHARS} characters")
    spend(1 + count // _CHARS_PER_STEP)


class _Generation(Extension):
    """Accepts `{% generation %}`, which marks the assistant's part for training, as if it were not there."""

    tags = {"generation"}  # noqa: RUF012 - jinja's own form

    def parse(self, parser: Parser) -> nodes.Node | list[nodes.Node]:
        line = next(parser.stream).lineno
        body = parser.parse_statements(("name:endgeneration",), drop_needle=True)
        return nodes.Scope(body, lineno=line)
