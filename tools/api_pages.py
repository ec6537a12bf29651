"""Where each public name of `core` and `core.api` is described: the pages of the reference and what each has."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cache
from types import MappingProxyType

from api_source import Definition, read

import core
import core.api
from core.api.descriptors import DESCRIPTORS


@dataclass(frozen=True)
class Page:
    """One page.

    Attributes:
        name: File name without ending; that of a kind's own page, where there is one.
        title: Heading.
        modules: Modules whose public names it has, below `core.api`.
        written: Names beside the kind's contract that plugins implement.
        names: Names that it has in place of what `modules` say.
    """

    name: str
    title: str
    modules: tuple[str, ...] = ()
    written: frozenset[str] = frozenset()
    names: frozenset[str] = frozenset()

    @property
    def group(self) -> str:
        """Entry-point group of its kind."""
        return "core.plugins" if self.name == "hooks" else f"core.{self.name}"


def _page(name: str, title: str, modules: str = "", written: str = "", names: str = "") -> Page:
    return Page(name, title, tuple(modules.split()), frozenset(written.split()), frozenset(names.split()))


PAGES = (
    _page("platforms", "Platforms", "platform facets", "Stream Queue Pending Done GraphFacet Graph CollectiveFacet"),
    _page(
        "attention_backends",
        "Attention backends",
        "attention kvspecs",
        "AttentionPlan AttentionLayer EncoderLayer AfterLoad TakesScales KVManager",
        "AttentionRequest",
    ),
    _page("quantization", "Quantization methods", "quantization forms", "Format"),
    _page("models", "Models", "models layers shapes experts states ranks rotary configs", "ChatTemplates"),
    _page("weight_transfer", "Weight transfer", names="WeightReceiver WeightManifest"),
    _page("weight_stores", "Weight stores", names="WeightStore KeptWeights"),
    _page("tool_parsers", "Tool parsers", "parsers"),
    _page("chat_templates", "Chat templates", "templates", "ChatTemplate"),
    _page("kv_connectors", "KV connectors", "connectors", "KVConnectorWorker"),
    _page("kernels", "Kernels", "kernels products", "Product WrappedProduct"),
    _page("weight_loaders", "Weight loaders", "weights", "WeightTensor"),
    _page("model_sources", "Model sources", "sources", names="ModelSource ModelFiles"),
    _page("structured_output", "Structured output", "structured", "CompiledGrammar GrammarMatcher PortableGrammar"),
    _page("drafters", "Drafters", "drafters"),
    _page("participants", "Participants", "participants", "StagedRequest"),
    _page("tasks", "Tasks", "tasks runners fronts", "WorkerTask TaskRunner TaskFront TaskPrompt"),
    _page("executors", "Executors", "executors steps"),
    _page("schedulers", "Scheduling policies", "schedulers"),
    _page("logits", "Logits processors", "logits"),
    _page("stat_sinks", "Stat sinks", "sinks"),
    _page("io_processors", "I/O processors", "io_processors"),
    _page("routes", "Routes", "routes uploads sockets figures serving operator pooling middleware bodies", "Job"),
    _page("tool_servers", "Tool servers", "tool_servers", "ToolSession"),
    _page("commands", "Commands", "commands cli given_options terminal plugins installed choices kept offline servers"),
    _page("flag_dialects", "Flag dialects", "flags"),
    _page("option_sections", "Sections of options", "option_sections"),
    _page("hooks", "Hooks", "hooks requests patches"),
    _page("kinds", "Kinds", "kinds"),
    _page(
        "shared",
        "Shared by all kinds",
        "descriptors record errors verdict tokenizer sampling sampling_table deprecation wire folders",
    ),
)
"""Pages of `core.api`. The names of a module that is new need a place here; further names of a module have one."""

RESULTS = MappingProxyType(
    {
        "core.frontend.prompts": "PromptInput Truncation",
        "core.frontend.llm": "Messages",
        "core.frontend.conversation": "Conversation",
        "core.frontend.request": "GenerationRequest",
        "core.frontend.results": "Logprob",
        "core.frontend.tasks.calls": "Prompts",
        "core.api.pooled": (
            "PoolingRequestOutput PoolingOutput EmbeddingOutput ClassificationOutput ScoringOutput "
            "EmbeddingRequestOutput ClassificationRequestOutput ScoringRequestOutput DataAnswer"
        ),
        "core.api.grammars": "Grammar Thinking",
        "core.api.repetition": "RepetitionDetection",
    }
)
"""Module -> types of it that the public names of `core` take or return."""


@dataclass
class Reference:
    """Every definition that is shown, and its page.

    Attributes:
        pages: Page name -> definitions, in the order of the sources.
        places: `Name` and `Name.member` -> page name.
    """

    pages: dict[str, list[Definition]] = field(default_factory=dict)
    places: dict[str, str] = field(default_factory=dict)

    def add(self, page: str, one: Definition) -> None:
        """Give a definition its place."""
        self.pages.setdefault(page, []).append(one)
        self.places[one.name] = page
        self.places.update({f"{one.name}.{member.name}": page for member in one.members if member.kind == "method"})

    def link(self, name: str, page: str) -> str | None:
        """Return the address of a name as seen from a page; None for what has no place."""
        if name.endswith(".__init__") or name not in self.places:
            return None
        there = self.places[name]
        return f"{'' if there == page else f'{there}.md'}#{anchor(name)}"


def anchor(name: str) -> str:
    """Return the anchor of a name's heading."""
    return name.lower().replace(".", "")


def collect() -> Reference:
    """Read everything that is public. Raises `SystemExit` for a public name without a page."""
    found = Reference()
    for page in PAGES:
        for one in _of_page(page):
            found.add(page.name, one)
    missing = sorted({*core.api.__all__} - found.places.keys())
    if missing:
        raise SystemExit(f"{', '.join(missing)}: no page has its module; add it to PAGES in tools/api_pages.py")
    for name in core.__all__:
        found.add("core", _of_core(name))
    for module, names in RESULTS.items():
        for name in names.split():
            found.add("core", read(module).definitions[name])
    return found


def _of_page(page: Page) -> Iterator[Definition]:
    """Yield a page's definitions: its descriptor, those of its modules, and those that it is given by name."""
    kind = DESCRIPTORS.get(page.group)
    public = _public()
    for name, one in public.items():
        home = one.module.rpartition(".")[2]
        given = next((other for other in PAGES if name in other.names), None)
        if home == "descriptors" and not given:
            of_kind = next((group for group, spec in DESCRIPTORS.items() if spec.__name__ == name), "")
            mine = one.name == kind.__name__ if kind else page.name == "shared" and not of_kind
        else:
            mine = given is page if given else home in page.modules
        if mine:
            yield one


@cache
def _public() -> dict[str, Definition]:
    """Return the public definitions of `core.api`, and those that their annotations name, module by module."""
    modules = [read(f"core.api.{name}") for page in PAGES for name in page.modules]
    known = {name: one for module in modules for name, one in module.definitions.items() if not _is_variable(one)}
    wanted = {name for name in known if name in core.api.__all__ or name.startswith("core_")}
    queue = list(wanted)
    while queue:
        words = " ".join(known[queue.pop()].types)
        new = {name for name in known if name not in wanted and name[0].isupper() and _names(words, name)}
        wanted |= new
        queue += sorted(new)
    return {name: one for name, one in known.items() if name in wanted}


def _names(words: str, name: str) -> bool:
    return name in words.replace("[", " ").replace("]", " ").replace(",", " ").replace("'", " ' ").split()


def _is_variable(one: Definition) -> bool:
    return one.value.startswith(("TypeVar(", "ParamSpec("))


def _of_core(name: str) -> Definition:
    """Return a public name of `core`; a class has the public methods of the bases that are no public names too."""
    module = read("core")
    if name in module.definitions:
        return module.definitions[name]
    home = module.imports[name]
    one = read(home).definitions[name]
    members = list(one.members)
    for base in one.bases:
        origin = read(home).imports.get(base, "")
        if origin.startswith("core."):
            mixin = read(origin).definitions[base]
            members += [member for member in mixin.members if member.name not in {own.name for own in members}]
    return Definition(name, home, one.kind, one.doc, (), tuple(members))
