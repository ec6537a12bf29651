"""docs/reference has every public name once, says what each takes and gives, and is checked."""

from __future__ import annotations

import importlib
import re
from pathlib import Path

import pytest

import core
import core.api
from core import ops
from core.api.descriptors import DESCRIPTORS
from core.ops.registry import REGISTRY

ROOT = Path(__file__).resolve().parents[3]
HEADING = re.compile(r"^### `(\w+)`$", re.MULTILINE)


@pytest.fixture(scope="module")
def tools():
    """The modules of the tool; they import each other as files of one folder."""
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(str(ROOT / "tools"))
        names = ("api_reference", "api_pages", "api_markdown", "api_source")
        yield {name: importlib.import_module(name) for name in names}


@pytest.fixture(scope="module")
def pages(tools):
    return tools["api_reference"].render(tools["api_pages"].collect())


@pytest.fixture(scope="module")
def shown(tools):
    """Every definition of `core.api` that is shown, with the name of its page."""
    found = tools["api_pages"].collect()
    return [(page, one) for page, several in found.pages.items() if page != "core" for one in several]


def test_every_public_name_has_one_place(pages):
    names = [name for page in pages.values() for name in HEADING.findall(page)]
    assert len(names) == len(set(names))
    assert {*core.api.__all__, *core.__all__} - set(names) == set()
    assert {name for name in core.__all__ if f"### `{name}`\n" not in pages["core.md"]} == set()


def test_every_kind_has_a_page_with_its_descriptor_and_a_link_to_the_guide(pages):
    kinds = {path.stem for path in (ROOT / "docs" / "plugins" / "kinds").glob("*.md")} - {"README"}
    assert {name.removesuffix(".md") for name in pages} == {*kinds, "README", "core", "kinds", "shared"}
    for group, kind in DESCRIPTORS.items():
        page = pages[f"{group.removeprefix('core.')}.md"]
        assert f"## Descriptor entry\n\n### `{kind.__name__}`" in page
        assert f"(../plugins/kinds/{group.removeprefix('core.')}.md)" in page


@pytest.mark.parametrize("kind", ["method", "field", "property"])
def test_every_member_that_a_plugin_meets_says_what_it_is(shown, tools, kind):
    bare = []
    for _, one in shown:
        doc = tools["api_markdown"].parse(one.doc)
        told = {name.strip() for names, _ in doc.sections.get("Attributes", ()) for name in names.split(",")}
        members = [member for member in one.members if member.kind == kind and not member.name.startswith("__")]
        bare += [f"{one.name}.{member.name}" for member in members if not member.doc and member.name not in told]
    assert bare == []


def test_every_name_says_what_it_is(shown):
    assert [one.name for _, one in shown if not one.doc] == []


def test_nothing_generated_inherited_or_private_shows(pages):
    text = "\n".join(pages.values())
    for noise in ("model_dump", "ConfigDict", "__eq__", "__post_init__", "_asdict", "with_traceback", "TypeVar"):
        assert noise not in text, noise
    assert re.findall(r"^#### `\w+\.(_(?!_call__)\w+)`", text, re.MULTILINE) == []
    fields = pages["kv_connectors.md"].partition("### `KVConnectorSpec`")[2].partition("\n## ")[0]
    assert re.findall(r"^\| `(\w+)` \|", fields, re.MULTILINE) == ["worker_impl", "devices"]


def test_signatures_sections_and_links(pages):
    page = pages["kv_connectors.md"]
    assert "KVConnector(options: Mapping[str, Any], *, block_size: int, bytes_per_block: int)" in page
    assert "def match(hashes: Sequence[bytes], local_blocks: int) -> int\n" in page
    assert "Types: [`BlockRef`](participants.md#blockref)" in page
    assert "| `queue_seconds`, `first_token_seconds`, `total_seconds` |" in pages["stat_sinks.md"]
    assert "| `priority` | `int, 0 to 100` | `50` |" in pages["shared.md"]
    assert "[`Verdict`](shared.md#verdict)" in pages["quantization.md"]
    asset = pages["routes.md"].partition("#### `RouteRegistry.asset`")[2].partition("####")[0]
    assert "**Arguments**" in asset and "- `headers`: Further headers, such as" in asset
    assert "- [`RequestError`](shared.md#requesterror): " in pages["core.md"]


TORCH_ON_CPUS = {"mask_tokens", "add_bias", "penalize"}


def test_every_operation_of_core_is_listed_with_signature_and_kernels(pages):
    page = pages["kernels.md"].partition("\n## Operations\n")[2]
    for name, spec in REGISTRY.items():
        (row,) = re.findall(rf"^\| \[`{name}`\]\(#operation-{name}\) \|.*$", page, re.MULTILINE)
        # torch's forms are fast enough for logits on a CPU.
        assert name in TORCH_ON_CPUS or re.search(rf"`cpu_(dense_)?{name}` \(cpu; bfloat16, float32", row)
        assert all(f"`{dim}`" in row for dim in spec.dims)
        part = page.partition(f"### Operation `{name}`\n")[2].partition("\n### ")[0]
        form = spec.reference.__name__
        assert f"`{spec.reference.__module__}.{form}`" in part
        assert f"def {form}(" in part if form == name else "a [`Product`](#product)" in part
    beside = page.partition("### Other functions")[2]
    assert {name for name in ops.__all__ if name not in REGISTRY and f"`{name}(" not in beside} == set()


@pytest.fixture
def folder(pages, tmp_path):
    for name, text in pages.items():
        (tmp_path / name).write_text(text)
    return tmp_path


def test_current_pages_pass(tools, folder, capsys):
    assert tools["api_reference"].main(["--check"], folder) == 0
    assert capsys.readouterr().out == ""


@pytest.mark.parametrize("change", ["text", "missing", "left over"])
def test_a_stale_page_is_told_and_written_anew(tools, pages, folder, capsys, change):
    path = folder / ("stale.md" if change == "left over" else "hooks.md")
    if change == "missing":
        path.unlink()
    else:
        path.write_text(pages["hooks.md"].replace("core_waive", "core_wave"))
    assert tools["api_reference"].main(["--check"], folder) == 1
    said = capsys.readouterr().out
    assert f"{path.name} is stale: run `python tools/api_reference.py`." in said and len(said.splitlines()) < 30
    assert tools["api_reference"].main([], folder) == 0
    assert {path.name: path.read_text() for path in folder.iterdir()} == pages


def test_a_name_without_a_page_is_named(tools, monkeypatch):
    monkeypatch.setattr(core.api, "__all__", [*core.api.__all__, "Novelty"])
    with pytest.raises(SystemExit, match="Novelty: no page has its module"):
        tools["api_pages"].collect()


def test_the_verbs_of_the_repository_use_it():
    makefile = (ROOT / "Makefile").read_text()
    assert "tools/api_reference.py --check" in makefile.partition("\nchecks:")[2].partition("\n\n")[0]
    assert "tools/api_reference.py\n" in makefile.partition("\ndocs:")[2].partition("\n\n")[0]


def test_readers_of_the_guides_are_led_to_it(pages):
    for page in ("README.md", "docs/plugins/author-guide.md", "docs/plugins/kinds/README.md"):
        assert "reference/README.md" in (ROOT / page).read_text(), page
    for page in (ROOT / "docs" / "plugins" / "kinds").glob("*.md"):
        assert f"(../../reference/{page.name})" in page.read_text(), page
