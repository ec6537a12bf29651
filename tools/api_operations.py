"""The table of operations: each one's signature, reference form, sizes, and the kernels for it in this repository."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from api_markdown import parse, prose
from api_source import Definition, read
from cli_reference import in_repository

from core.api.descriptors import KernelSpec
from core.api.kernels import PRODUCTS
from core.ops import __all__ as every
from core.ops.registry import REGISTRY
from core.plugins.drivers import load_descriptors


def operations(root: Path) -> Iterator[str]:
    """Yield the part about operations of the page about kernels."""
    kernels = _kernels(root)
    yield from ("## Operations", "", "The operations that kernels may implement, `core.api.OPS`. The reference form of")
    yield "each is in `core.ops`; a kernel has its signature. Dimensions are the names that a descriptor's `dims` may"
    yield "have; operations without any ask for no sizes. Plugins may bring others (`KernelSpec.reference`)."
    yield from ("", "| operation | dimensions | kernels in this repository |", "|---|---|---|")
    for name, spec in REGISTRY.items():
        dims = ", ".join(f"`{dim}`" for dim in spec.dims)
        yield f"| [`{name}`](#operation-{name}) | {dims} | {'; '.join(_told(one) for one in kernels.get(name, []))} |"
    yield ""
    for name, spec in REGISTRY.items():
        form = _form(spec.reference.__module__, spec.reference.__name__)
        made = ", a [`Product`](#product)" if name in PRODUCTS else ""
        yield from (f"### Operation `{name}`", "", f"Reference form: `{form.module}.{form.name}`{made}.", "")
        yield from ("```python", form.signature, "```", "") if form.signature else ()
        yield from _words(form)
    beside = [name for name in every if name not in REGISTRY]
    yield from ("### Other functions of `core.ops`", "", "No kernel can take their place.", "")
    for name in beside:
        form = _form(_home(name), name)
        first = prose(" ".join(parse(form.doc).text.partition("\n\n")[0].split()), lambda _: None)
        yield f"- `{form.signature.removeprefix('def ').replace(chr(10), ' ')}` (`{form.module}`): {first}"


def _kernels(root: Path) -> dict[str, list[KernelSpec]]:
    """Return the repository's kernels by operation, best first. Raises `PluginError` for one that cannot be loaded."""
    candidates, failures = load_descriptors(in_repository(root).entries(KernelSpec.group), usable=False)
    for failure in failures:
        raise failure.error("the reference")
    found: dict[str, list[KernelSpec]] = {}
    for candidate in sorted(
        candidates, key=lambda one: (-one.descriptor.band, -one.descriptor.priority, one.entry.name)
    ):
        found.setdefault(candidate.descriptor.op, []).append(candidate.descriptor)
    return found


def _told(kernel: KernelSpec) -> str:
    sizes = ", ".join(sorted(kernel.dims))
    needs = ", ".join(sorted(kernel.needs))
    where = f"{', '.join(sorted(kernel.devices))}; {', '.join(sorted(kernel.dtypes))}"
    limits = f"; limits of {sizes}" if sizes else ""
    return f"`{kernel.name}` ({where}{limits}{f'; needs {needs}' if needs else ''})"


def _form(module: str, name: str) -> Definition:
    return read(module).definitions[name]


def _home(name: str) -> str:
    return read("core.ops").imports[name]


def _words(form: Definition) -> Iterator[str]:
    doc = parse(form.doc)
    yield from (prose(doc.text, lambda _: None), "")
    for section, title in (("Args", "Arguments"), ("Returns", "Returns")):
        if doc.sections.get(section):
            yield from (f"**{title}**", "")
            for names, text in doc.sections[section]:
                yield f"- {f'`{names}`: ' if names else ''}{prose(text, lambda _: None)}"
            yield ""
