"""Public definitions of modules of core, read from their sources without importing them.

Reading sources shows annotations and defaults as they were written, in their order, and none of what decorators and
bases generate.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent

_FACTORIES = {"dict": "{}", "list": "[]", "set": "set()"}
_MAKERS = {
    "Protocol": "protocol",
    "BaseModel": "pydantic model",
    "Record": "record",
    "NamedTuple": "named tuple",
    "msgspec.Struct": "struct",
}
"""Bases that say how a class is made, and what such a class is."""


@dataclass(frozen=True)
class Member:
    """A field, property or method of a class.

    Attributes:
        kind: `field`, `property` or `method`.
        type: Annotation of a field or of what a property returns.
        default: Default of a field as it is written; empty for none.
        signature: Of a method: `def name(...) -> ...`, without `self`.
        doc: Its docstring, or empty.
    """

    name: str
    kind: str
    type: str = ""
    default: str = ""
    signature: str = ""
    doc: str = ""


@dataclass(frozen=True)
class Definition:
    """A public name of a module.

    Attributes:
        kind: What it is, in words; `constant` for a value.
        doc: Docstring, or the string below a constant.
        bases: Bases as they are written.
        members: Public fields, properties and methods in the order of the source, `__init__` and `__call__` among them.
        signature: Of a function.
        value: Of a constant or an alias, as it is written.
    """

    name: str
    module: str
    kind: str
    doc: str = ""
    bases: tuple[str, ...] = ()
    members: tuple[Member, ...] = ()
    signature: str = ""
    value: str = ""

    @property
    def types(self) -> Iterator[str]:
        """Every annotation in it, as text."""
        yield from (*self.bases, self.signature, self.value if self.kind == "type" else "")
        for member in self.members:
            yield from (member.type, member.signature)


@dataclass(frozen=True)
class Module:
    """A module's docstring, its public definitions, and where the names that it imports come from."""

    name: str
    doc: str
    definitions: dict[str, Definition] = field(default_factory=dict)
    imports: dict[str, str] = field(default_factory=dict)


@cache
def read(name: str) -> Module:
    """Return a module by its dotted name. Raises `FileNotFoundError`."""
    path = ROOT.joinpath(*name.split("."))
    path = path / "__init__.py" if path.is_dir() else path.with_suffix(".py")
    source = path.read_text(encoding="utf-8")
    tree = ast.parse(source)
    module = Module(name, ast.get_docstring(tree) or "")
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and node.module:
            module.imports.update({alias.asname or alias.name: node.module for alias in node.names})
    for node, following in zip(tree.body, [*tree.body[1:], None], strict=True):
        if (found := _definition(node, following, name, source)) and (
            not found.name.startswith("_") or found.name.startswith("__")
        ):
            module.definitions[found.name] = found
    return module


def _definition(node: ast.stmt, following: ast.stmt | None, module: str, source: str) -> Definition | None:
    if isinstance(node, ast.ClassDef):
        bases = [ast.unparse(base) for base in node.bases]
        plain = tuple(base for base in bases if base.partition("[")[0] not in ("Generic", *_MAKERS))
        return Definition(
            node.name, module, _kind(node, bases), ast.get_docstring(node) or "", plain, tuple(_members(node))
        )
    if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
        return Definition(
            node.name, module, "function", ast.get_docstring(node) or "", signature=_signature(node, bound=False)
        )
    target = (
        node.targets[0] if isinstance(node, ast.Assign) else node.target if isinstance(node, ast.AnnAssign) else None
    )
    if not isinstance(target, ast.Name):
        return None
    if node.value is None:  # its module's `__getattr__` makes it
        return Definition(target.id, module, "constant", _string(following), value="...")
    value = ast.get_source_segment(source, node.value) or ""
    alias = isinstance(node, ast.Assign) and _is_type(node.value)
    return Definition(target.id, module, "type" if alias else "constant", _string(following), value=value)


def _kind(node: ast.ClassDef, bases: list[str]) -> str:
    """Return what a class is, in words."""
    marks = [ast.unparse(mark).partition("(")[0] for mark in node.decorator_list]
    if "dataclass" in marks:
        return "data class"
    return next((words for base in bases if (words := _MAKERS.get(base.partition("[")[0]))), "class")


def _is_type(value: ast.expr) -> bool:
    """Whether an expression makes a type of types: `A | B`, `Literal[...]`, `Callable[..., Any]`."""
    return isinstance(value, ast.Subscript) or (isinstance(value, ast.BinOp) and isinstance(value.op, ast.BitOr))


def _string(node: ast.stmt | None) -> str:
    """Return the text of a string that stands alone below a constant."""
    if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str):
        return node.value.value
    return ""


def _members(owner: ast.ClassDef) -> Iterator[Member]:
    for node in owner.body:
        if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name):
            kind = ast.unparse(node.annotation)
            if not kind.startswith("ClassVar") and not node.target.id.startswith("_"):
                doc = _meaning(node.target.id) if owner.name == "SamplingParams" else ""
                yield Member(node.target.id, "field", _plain(kind), _default(node.value), doc=doc)
        elif isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and _is_public(node.name):
            yield _method(node)


def _meaning(parameter: str) -> str:
    """Return what the table of sampling parameters says of one; empty for those that its class alone has."""
    from core.api.sampling_table import SAMPLING_FIELDS

    return SAMPLING_FIELDS[parameter].meaning if parameter in SAMPLING_FIELDS else ""


def _is_public(method: str) -> bool:
    return method in ("__init__", "__call__") or not method.startswith("_")


def _method(node: ast.FunctionDef | ast.AsyncFunctionDef) -> Member:
    marks = {ast.unparse(mark) for mark in node.decorator_list}
    doc = ast.get_docstring(node) or ""
    if marks & {"property", "cached_property"}:
        return Member(node.name, "property", ast.unparse(node.returns) if node.returns else "", doc=doc)
    signature = _signature(node, bound="staticmethod" not in marks)
    kind = " ".join(f"@{mark}" for mark in sorted(marks & {"classmethod", "staticmethod", "contextmanager"}))
    return Member(node.name, "method", signature=f"{kind} {signature}".strip(), doc=doc)


def _plain(annotation: str) -> str:
    """Return an annotation without what validates: `Annotated[int, Between(0, 100)]` is `int, 0 to 100`."""
    found = re.fullmatch(r"Annotated\[(\w+), Between\((\d+), (\d+)\)\]", annotation)
    return f"{found[1]}, {found[2]} to {found[3]}" if found else annotation


def _default(value: ast.expr | None) -> str:
    """Return a field's default as it is written; of one that is made, what is made."""
    if value is None:
        return ""
    if not (isinstance(value, ast.Call) and ast.unparse(value.func) == "field"):
        text = ast.unparse(value)
        return "{}" if text == "EMPTY" else text
    given = {word.arg: ast.unparse(word.value) for word in value.keywords}
    factory = given.get("default_factory", "")
    return given.get("default", _FACTORIES.get(factory, f"{factory}()" if factory else ""))


def _signature(node: ast.FunctionDef | ast.AsyncFunctionDef, *, bound: bool) -> str:
    """Return `def name(...) -> ...`; one that is too long for a line has a line for each parameter."""
    prefix = "async def" if isinstance(node, ast.AsyncFunctionDef) else "def"
    words = list(_parameters(node.args))[1 if bound else 0 :]
    end = f" -> {ast.unparse(node.returns)}" if node.returns and node.name != "__init__" else ""
    line = f"{prefix} {node.name}({', '.join(words)}){end}"
    if len(line) <= 100:
        return line
    return f"{prefix} {node.name}(\n" + "".join(f"    {word},\n" for word in words) + f"){end}"


def _parameters(given: ast.arguments) -> Iterator[str]:
    positional = [*given.posonlyargs, *given.args]
    defaults: list[ast.expr | None] = [None] * (len(positional) - len(given.defaults))
    for number, (one, default) in enumerate(zip(positional, [*defaults, *given.defaults], strict=True), 1):
        yield _parameter(one, default)
        if number == len(given.posonlyargs):
            yield "/"
    if given.vararg:
        yield f"*{_parameter(given.vararg, None)}"
    elif given.kwonlyargs:
        yield "*"
    for one, default in zip(given.kwonlyargs, given.kw_defaults, strict=True):
        yield _parameter(one, default)
    if given.kwarg:
        yield f"**{_parameter(given.kwarg, None)}"


def _parameter(one: ast.arg, default: ast.expr | None) -> str:
    text = f"{one.arg}: {ast.unparse(one.annotation)}" if one.annotation else one.arg
    if default is None:
        return text
    return f"{text} = {ast.unparse(default)}" if one.annotation else f"{text}={ast.unparse(default)}"
