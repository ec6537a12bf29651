"""Facts about transformers' classes, read from its installed source files. Torch-free: importing them needs torch."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping
from functools import cache
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path
from typing import Any, NamedTuple


class Source(NamedTuple):
    """A model's files.

    Attributes:
        architecture: Name of the class with the output projection.
        classes: The classes of its modeling file, by name.
        settings: Those of its configuration file.
        text: The modeling file.
    """

    architecture: str
    classes: Mapping[str, ast.ClassDef]
    settings: Mapping[str, ast.ClassDef]
    text: str

    def line(self, name: str) -> Iterator[ast.ClassDef]:
        """Yield a class and those of the same file that it inherits from, in order."""
        return _line(self.classes, name)

    def attribute(self, name: str) -> Any:
        """Return the literal value of a class attribute of the architecture; None where there is none."""
        for one in self.line(self.architecture):
            for target, value in _assigned(one):
                if target == name:
                    return _literal(value)
        return None

    def arguments(self) -> frozenset[str]:
        """Return the names of the arguments of the architecture's forward pass."""
        for one in self.line(self.architecture):
            for item in one.body:
                if isinstance(item, ast.FunctionDef) and item.name == "forward":
                    return frozenset(given.arg for given in (*item.args.args, *item.args.kwonlyargs))
        return frozenset()

    def defaults(self) -> dict[str, Any]:
        """Return what the configuration's class says of keys that a file leaves out."""
        found: dict[str, Any] = {}
        for one in reversed(list(_line(self.settings, self._settings_class()))):
            found |= {name: _literal(value) for name, value in _assigned(one)}
        return found

    def _settings_class(self) -> str:
        for one in self.line(self.architecture):
            for item in one.body:
                if isinstance(item, ast.AnnAssign) and ast.unparse(item.target) == "config":
                    return ast.unparse(item.annotation).strip("\"'")
        return ""


def installed() -> str:
    """Return which transformers is installed, in words."""
    return f"transformers {version('transformers')}"


def causal() -> list[str]:
    """Return the architectures that the installed transformers counts among the causal language models."""
    return sorted(_causal())


@cache
def source_of(architecture: str) -> Source | None:
    """Return the files of an architecture; None for one that the installed transformers has no class of."""
    pattern = f"class {architecture}("
    for path in _candidates(architecture):
        text = path.read_text(encoding="utf-8")
        if pattern not in text:
            continue
        settings = path.with_name(path.name.replace("modeling_", "configuration_", 1))
        return Source(architecture, _classes(text), _classes(settings.read_text(encoding="utf-8")), text)
    return None


def _candidates(architecture: str) -> Iterator[Path]:
    """Yield the modeling files, the likeliest first."""
    models = _root() / "models"
    kinds = _causal().get(architecture, ())
    names = [kind.replace("-", "_").removesuffix("_text") for kind in kinds]
    likely = [path for name in names if (path := models / name / f"modeling_{name}.py").is_file()]
    yield from likely
    yield from (path for path in sorted(models.glob("*/modeling_*.py")) if path not in likely)


@cache
def _causal() -> dict[str, tuple[str, ...]]:
    """Return architecture -> values of `model_type` of the causal language models."""
    tree = ast.parse((_root() / "models" / "auto" / "modeling_auto.py").read_text(encoding="utf-8"))
    found: dict[str, tuple[str, ...]] = {}
    for item in tree.body:
        if isinstance(item, ast.Assign) and ast.unparse(item.targets[0]) == "MODEL_FOR_CAUSAL_LM_MAPPING_NAMES":
            assert isinstance(item.value, ast.Call)
            for kind, name in ast.literal_eval(item.value.args[0]):
                found[name] = (*found.get(name, ()), kind)
    return found


def _root() -> Path:
    spec = find_spec("transformers")
    if spec is None or spec.origin is None:
        raise ModuleNotFoundError("transformers is not installed")
    return Path(spec.origin).parent


def _classes(text: str) -> dict[str, ast.ClassDef]:
    return {item.name: item for item in ast.parse(text).body if isinstance(item, ast.ClassDef)}


def _line(classes: Mapping[str, ast.ClassDef], name: str) -> Iterator[ast.ClassDef]:
    if name in classes:
        yield classes[name]
        for base in classes[name].bases:
            yield from _line(classes, ast.unparse(base))


def _assigned(one: ast.ClassDef) -> Iterator[tuple[str, ast.expr]]:
    for item in one.body:
        if isinstance(item, ast.Assign):
            yield ast.unparse(item.targets[0]), item.value
        elif isinstance(item, ast.AnnAssign) and item.value is not None:
            yield ast.unparse(item.target), item.value


def _literal(value: ast.expr) -> Any:
    try:
        return ast.literal_eval(value)
    except ValueError:
        return None
