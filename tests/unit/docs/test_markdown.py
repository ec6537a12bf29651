"""Every page of the repository: links, headings, blocks of code, names of files, flags."""

from __future__ import annotations

import ast
import importlib
import importlib.util
import json
import re
import tomllib
from functools import cache
from itertools import chain
from pathlib import Path

import pytest
import yaml
from core_plugin_vllm_flags.figures import CACHE, SERIES
from core_plugin_vllm_flags.names import NAMES
from core_plugin_vllm_flags.translation import by_name

from core.cli.tree import commands, whole_parser
from core.config.fields import option_fields
from core.plugins.kinds import KINDS, KINDS_GROUP
from core.server.auth import PUBLIC_PATHS
from core.server.health import METRICS
from core.server.refusals import BY_STATUS, GRAMMAR, REASONS
from core_testing import conformance

ROOT = Path(__file__).parents[3]
PAGES = sorted(
    chain(
        ROOT.glob("*.md"),
        (ROOT / "docs").rglob("*.md"),
        ROOT.glob("csrc/*.md"),
        ROOT.glob("plugins/*/*/*.md"),
        ROOT.glob("examples/plugins/**/*.md"),
    )
)
GENERATED = ("cli.md", "capabilities.md", "supported.md", "vllm-flags.md")
WRITTEN = [page for page in PAGES if page.name not in GENERATED and page.parent.name != "reference"]
FENCE = re.compile(r"^```([\w-]*)[^\n]*\n(.*?)^```$", re.MULTILINE | re.DOTALL)
LINK = re.compile(r"\]\(([^)\s]+)\)")
HEADING = re.compile(r"^#{1,6} (.+)$", re.MULTILINE)
PLACE = re.compile(
    r"`(?:python )?((?:core|plugins|docs|tests|tools|examples|csrc|benchmarks|requirements)/[\w./-]+?)/?(?= |`)"
)
FLAG = re.compile(r"(?<![\w-])--[a-z][a-z0-9-]+")
FOREIGN = {  # flags of pip, pytest, cmake, node and of this repository's tools; what every command has; one of vLLM's
    *("--no-deps", "--no-build-isolation", "--force-reinstall", "--find-links", "--build", "--test"),
    *("--index-url", "--extra-index-url"),
    "--top-n-sigma",  # of an example plugin
    *("--ctx-size", "--parallel", "--mlock"),  # of another server, as an example
    *("--core-plugin-conformance", "--core-conformance-report", "--core-conformance-level"),
    *("--emulator", "--processor", "--cold", "--streams", "--tokens", "--rows", "--update", "--check"),
    *("--picks", "--ratio"),
    *(
        "--only",
        "--groups",
        "--list",
        "--peers",
        "--write",
        "--version",
        "--help",
        "--debug",
        "--log-level",
        "--log-format",
        "--tokenizer-revision",
        "--moderator",  # of the kind that an example defines
        *("--moderation-limit", "--moderation-texts"),  # of its section
        *("--most-notes", "--notes"),  # of the example of a page
    ),
}
CLASS = re.compile(r"[A-Z][a-z]+[A-Z]\w*")
FOREIGN_CLASSES = {"LlamaModel", "MistralModel", "Qwen2Model", "Qwen3Model", "Qwen3ForSequenceClassification"}
FOREIGN_CLASSES |= {"NewModel"}  # of checkpoints, made of parts in a manifest
FOREIGN_CLASSES |= {"AnthropicModel", "NativeOutput", "ToolOutput", "Output"}  # of clients


def prose(page: Path) -> str:
    return FENCE.sub("", page.read_text(encoding="utf-8"))


def blocks(language: str) -> list[tuple[str, str]]:
    return [
        (f"{page.relative_to(ROOT)}: {text[:60]!r}", text)
        for page in WRITTEN
        for found, text in FENCE.findall(page.read_text(encoding="utf-8"))
        if found == language
    ]


def resolves(name: str) -> bool:
    """Say whether a dotted name of core is a module, or a name that a module's source has."""
    module, *rest = name.split(".")
    path = ROOT / module
    while rest and ((path / rest[0]).is_dir() or (path / rest[0]).with_suffix(".py").is_file()):
        path /= rest.pop(0)
    source = path / "__init__.py" if path.is_dir() else path.with_suffix(".py")
    text = source.read_text(encoding="utf-8")
    return all(re.search(rf"\b{word}\b", text) for word in rest[:1])


@cache
def anchors(page: Path) -> set[str]:
    found: set[str] = set()
    for heading in HEADING.findall(prose(page)):
        words = re.sub(r"[^\w\- ]", "", LINK.sub("]", heading).lower()).strip().replace(" ", "-")
        found.add(next(name for number in range(99) if (name := f"{words}-{number}" if number else words) not in found))
    return found


def test_every_relative_link_and_its_heading_exist():
    wrong = []
    for page in PAGES:
        for target in LINK.findall(prose(page)):
            path, _, anchor = target.partition("#")
            there = (page.parent / path).resolve() if path else page
            if "://" not in target and (
                not there.exists() or (anchor and there.suffix == ".md" and anchor not in anchors(there))
            ):
                wrong.append(f"{page.relative_to(ROOT)}: {target}")
    assert len(PAGES) > 90 and wrong == []


def test_every_file_that_is_named_exists():
    named = [(page, place) for page in WRITTEN for place in PLACE.findall(prose(page))]
    assert len(named) > 50
    assert [f"{page.relative_to(ROOT)}: {place}" for page, place in named if not any(ROOT.glob(f"{place}*"))] == []


def test_every_module_and_class_that_is_named_exists():
    sources = [*(ROOT / "core").rglob("*.py"), *ROOT.glob("plugins/*/*/src/**/*.py"), *ROOT.glob("examples/**/*.py")]
    words = set(re.findall(r"\w+", "\n".join(source.read_text(encoding="utf-8") for source in sources)))
    wrong = []
    for page in WRITTEN:
        for name in re.findall(r"`([A-Za-z_][\w.]*)(?:\([^`]*\))?`", prose(page)):
            first, *rest = name.split(".")
            inside = (
                first == "core" and rest and name not in {*KINDS, KINDS_GROUP} and not name.endswith((".toml", ".yaml"))
            )
            known = resolves(name) if inside else first in words | FOREIGN_CLASSES or not CLASS.fullmatch(first)
            if not known:
                wrong.append(f"{page.relative_to(ROOT)}: {name}")
    assert wrong == []


def test_every_flag_is_one():
    known = {flag for _, parser in commands(whole_parser()) for flag in parser._option_string_actions}
    known |= {name for field in option_fields() for name in field.names}
    known |= {*by_name(), *(f"--{name}" for name in NAMES)}
    known |= {flag.replace("--", "--no-", 1) for flag in known}
    used = {(page.name, flag) for page in WRITTEN for flag in FLAG.findall(page.read_text(encoding="utf-8"))}
    assert len(used) > 100
    assert sorted((page, flag) for page, flag in used if flag not in known | FOREIGN) == []


def test_data_in_the_pages_is_well_formed():
    toml = blocks("toml")
    assert toml and blocks("json")
    for _, text in toml:
        tomllib.loads(text)
    for where, text in blocks("json"):
        assert json.loads(text), where


@pytest.mark.parametrize(("where", "text"), [pytest.param(*one, id=one[0]) for one in blocks("python")])
def test_python_in_the_pages_compiles_and_what_it_imports_of_core_exists(where, text):
    for node in ast.walk(ast.parse(text, where)):
        if isinstance(node, ast.ImportFrom) and (node.module or "").split(".")[0] == "core":
            module = importlib.import_module(node.module)
            for name in node.names:
                inside = importlib.util.find_spec(f"{node.module}.{name.name}") if hasattr(module, "__path__") else None
                assert hasattr(module, name.name) or inside is not None, f"{where}: {name.name}"


def test_the_readme_leads_to_every_page_and_names_every_kind_of_plugin():
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    linked = {(ROOT / path.partition("#")[0]).resolve() for path in LINK.findall(text) if "://" not in path}
    assert [page.name for page in (ROOT / "docs").glob("*.md") if page not in linked] == []
    assert [page.name for page in (ROOT / "docs" / "plugins").glob("*.md") if page not in linked] == []
    picture = text.partition("## Picture")[2].partition("```")[2].partition("```")[0]
    named = set(re.findall(r"\w+", picture.partition("  plugins ")[2]))
    assert named == {page.stem for page in (ROOT / "docs" / "plugins" / "kinds").glob("*.md")} - {"README", "kinds"}


def test_error_codes_are_sorted_within_their_part():
    text = (ROOT / "docs" / "errors.md").read_text(encoding="utf-8")
    for part in text.split("\n## ")[1:]:
        codes = re.findall(r"^\| (CORE-[A-Z]\d{3}) ", part, re.MULTILINE)
        assert codes == sorted(codes), part.partition("\n")[0]
        assert len({code[5] for code in codes}) == 1, part.partition("\n")[0]


def test_every_sample_of_the_kit_is_listed():
    classes = {name for name in conformance.__all__ if name.endswith("Sample") and name != "Sample"}
    page = (ROOT / "docs" / "plugins" / "conformance.md").read_text(encoding="utf-8")
    assert classes == set(re.findall(r"^\| `(\w+Sample)` \|", page, re.MULTILINE))


def test_every_figure_of_the_metrics_is_documented():
    sources = [ROOT / "core" / "server" / name for name in ("metrics.py", "tally.py")]
    made = {name for source in sources for name in re.findall(r'"(core_[a-z0-9_]+)"', source.read_text())}
    page = (ROOT / "docs" / "monitoring.md").read_text(encoding="utf-8")
    told = {name.removesuffix("_total") for name in re.findall(r"`(core_[a-z0-9_]+)`", page)}
    assert len(made) > 15 and told == made


def test_every_reason_of_a_refusal_and_every_name_of_vllm_is_documented():
    page = (ROOT / "docs" / "monitoring.md").read_text(encoding="utf-8")
    table = page.partition("### Refused requests")[2].partition("### ")[0]
    told = {name for row in re.findall(r"^\| (`.*?) \|", table, re.MULTILINE) for name in re.findall(r"`(\w+)`", row)}
    assert told - {"reason"} == {GRAMMAR, *REASONS.values(), *BY_STATUS.values(), "invalid_request", "internal_error"}
    shown = {name.removesuffix("_total") for name in re.findall(r"^\| (`vllm:.*?) \|", page, re.MULTILINE)}
    names = {name.removesuffix("_total") for row in shown for name in re.findall(r"`(vllm:\w+)`", row)}
    assert names == {*SERIES, CACHE}


def test_the_snippets_of_monitoring_are_yaml():
    page = (ROOT / "docs" / "monitoring.md").read_text(encoding="utf-8")
    probes, scrape = (yaml.safe_load(text) for kind, text in FENCE.findall(page) if kind == "yaml")
    paths = {name: probe["httpGet"]["path"] for name, probe in probes.items() if isinstance(probe, dict)}
    assert paths == {"startupProbe": "/readyz", "livenessProbe": "/livez", "readinessProbe": "/readyz"}
    assert {*paths.values()} <= PUBLIC_PATHS and scrape["scrape_configs"][0]["metrics_path"] == METRICS
