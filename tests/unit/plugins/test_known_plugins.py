"""The table of known plugins agrees with the repository, and every message that could name a distribution does."""

from __future__ import annotations

import re
import tomllib
from fnmatch import fnmatchcase
from pathlib import Path

import pytest

from core.api.descriptors import ModelSpec, QuantSpec
from core.api.errors import CoreError
from core.cli.plugins.naming import named
from core.config.resolved import Options
from core.plugins.catalog import Catalogue
from core.plugins.drivers import load_descriptors
from core.plugins.entry import Entry
from core.plugins.kinds import KINDS
from core.plugins.known import Hardware, Table, advice, platform_advice
from core.selection.resolver import resolve

ROOT = Path(__file__).parents[3]
TABLE = Table.read()


def projects():
    """Distribution -> kind -> names, from the projects of the repository."""
    found = {}
    for file in ROOT.glob("plugins/*/*/pyproject.toml"):
        project = tomllib.loads(file.read_text())["project"]
        points = project.get("entry-points", {})
        found[project["name"]] = {
            group.removeprefix("core."): set(names) for group, names in points.items() if group != "pytest11"
        }
    return found


def released():
    return {row.dist: row for row in TABLE.rows if row.state == "released"}


def without(*names):
    """What is installed, without these distributions."""
    return Catalogue([entry for entry in Catalogue.scan().every() if entry.dist not in names])


@pytest.mark.covers("PKG-01")
def test_released_rows_are_the_distributions_of_the_repository_with_their_names():
    table = {dist: {kind: set(names) for kind, names in row.names.items()} for dist, row in released().items()}
    assert table == projects()


def test_planned_names_are_not_in_the_repository_and_every_kind_exists():
    planned = [row.dist for row in TABLE.rows if row.state == "planned"]
    assert planned and not set(planned) & set(projects())
    assert all(re.fullmatch("core-plugin-[a-z0-9-]+", dist) for dist in planned)
    assert {f"core.{kind}" for row in TABLE.rows for kind in row.names} <= set(KINDS)
    assert {row.state for row in TABLE.rows} == {"released", "planned", "unplanned", "renamed", "instead"}


def specs(group):
    ours = projects()
    entries = [entry for entry in Catalogue.scan().entries(group) if entry.dist in ours]
    return [(one.entry.dist, one.descriptor) for one in load_descriptors(entries, usable=False)[0]]


def test_architectures_are_those_that_the_manifests_list():
    listed = {}
    for dist, spec in specs(ModelSpec.group):
        if not spec.fallback:  # one of last resort names none
            listed.setdefault(dist, set()).update(spec.architectures)
    assert {dist: set(row.architectures) for dist, row in released().items() if row.architectures} == listed


def test_methods_are_those_that_the_manifests_list():
    listed = {(dist, method) for dist, spec in specs(QuantSpec.group) for method in spec.methods}
    table = {(dist, method) for dist, row in released().items() for method in row.methods}
    assert table <= listed and {method for _, method in table} == {method for _, method in listed}


def test_a_planned_pattern_takes_nothing_that_is_released():
    there = [architecture for row in released().values() for architecture in row.architectures]
    patterns = [pattern for row in TABLE.rows if row.state == "planned" for pattern in row.architectures]
    assert not [one for one in there if any(fnmatchcase(one, pattern) for pattern in patterns)]


@pytest.mark.covers("PLAT-01")
def test_devices_are_named_in_the_table_alone():
    names = re.compile(r"\b(cuda|rocm|hip|xpu|tpu|nvidia|amd|gaudi)\b", re.IGNORECASE)
    files = [file for file in (ROOT / "core").rglob("*") if file.suffix in (".py", ".tmpl", ".toml")]
    assert [file.name for file in files if names.search(file.read_text(encoding="utf-8"))] == ["known.toml"]


# -- messages ----------------------------------------------------------------------------------------------------------


def refusal(catalogue, **sections):
    options = Options.model_validate({"model": {"model": "smollm2"}, **sections})
    with pytest.raises(CoreError) as caught:
        resolve(options, catalogue=catalogue)
    return caught.value


@pytest.mark.covers("QUANT-02")
@pytest.mark.parametrize(
    ("option", "name", "said"),
    [
        ("platform", "rocm", "'rocm' comes with core-plugin-rocm (AMD GPUs): `pip install core-plugin-rocm`."),
        ("platform", "gpu", "There is no 'gpu': --platform takes cuda (core-plugin-cuda, NVIDIA GPUs), rocm"),
        ("platform", "tpu", "No plugin for Google TPUs is released or planned."),
        ("platform", "cpuu", "Did you mean 'cpu'?"),
        ("quantization", "cpu_dense", "--kernel linear=cpu_dense_linear,lookup=cpu_dense_lookup"),
        ("quantization", "cpu_gguf", "'cpu_gguf' is a name of earlier versions: --quantization names formats only"),
        ("quantization", "deepspeedfp", "There is no 'deepspeedfp': it is retired everywhere. Use --quantization fp8"),
        ("quantization", "eetq", "No plugin for EETQ checkpoints is released or planned."),
        (
            "quantization",
            "gptq_marlin",
            "a format is chosen by its checkpoint, and what multiplies with it by --kernel",
        ),
        (
            "quantization",
            "ipex",
            "a set of kernels for AWQ and GPTQ checkpoints, which core-plugin-cpu multiplies with",
        ),
        ("quantization", "awq", "'awq' comes with core-plugin-awq (AWQ checkpoints): `pip install core-plugin-awq`."),
        ("quantization", "compressed_tensors", "Did you mean 'compressed-tensors'?"),
        ("attention_backend", "FLASH_ATTN", "Did you mean 'flash_attn'?"),
        ("attention_backend", "CUTLASS_MLA", "'CUTLASS_MLA' is planned as core-plugin-mla"),
        ("tool_parser", "hermes", "`pip install core-plugin-hermes`"),
        ("tool_parser", "hermess", "Did you mean 'hermes'?"),
        ("reasoning_parser", "hermes", "`pip install core-plugin-hermes`"),
        ("kv_connector", ["nixl"], "'nixl' is planned as core-plugin-nixl"),
        ("route", ["ollama"], "`pip install core-plugin-ollama`"),
        ("executor", "ray", "'ray' is planned as core-plugin-ray"),
        ("structured_output", "outlines", "'outlines' is planned as core-plugin-outlines"),
    ],
)
def test_a_known_name_leads_to_its_distribution_and_a_slip_to_the_nearest(option, name, said):
    catalogue = without("core-plugin-awq", "core-plugin-hermes", "core-plugin-ollama", "core-plugin-rocm")
    error = refusal(catalogue, select={option: name})
    assert error.code == "CORE-P101"
    assert said in error.hint
    assert ("Did you mean" in error.hint) == ("Did you mean" in said)


def test_options_for_a_known_plugin_name_its_distribution():
    error = refusal(without("core-plugin-awq"), runtime={"plugin_options": {"awq": {"bits": 4}}})
    assert error.code == "CORE-C112" and "`pip install core-plugin-awq`" in error.hint


@pytest.mark.parametrize("name", ["cpu_dense", "cpu_gguf", "cpu_awq", "cpu_gptq", "cpu_compressed_tensors"])
def test_options_of_a_method_of_earlier_versions_name_the_product_that_has_them(name):
    error = refusal(Catalogue.scan(), runtime={"plugin_options": {name: {"head": "int8"}}})
    assert error.code == "CORE-C112" and "cpu_lookup.head" in error.hint


def test_a_model_source_that_is_not_installed_is_named():
    error = refusal(without("core-plugin-smollm2"))
    assert error.code == "CORE-M101" and "`pip install core-plugin-smollm2`" in error.hint


@pytest.mark.parametrize(
    ("model", "code", "said"),
    [
        ("model BertModel none 128 float32", "CORE-M103", "`pip install core-plugin-bert`"),
        ("model AcmeForCausalLM none 128 float32", "CORE-M103", "Install a model plugin that implements it"),
        ("model LlamaForCausalLM torchao 128 float32", "CORE-P203", "`pip install core-plugin-torchao`"),
        ("model LlamaForCausalLM hqq 128 float32", "CORE-P203", "`pip install core-plugin-hqq`"),
        (
            "model LlamaForCausalLM eetq 128 float32",
            "CORE-P203",
            "No plugin for EETQ checkpoints is released or planned",
        ),
        ("model LlamaForCausalLM gptq 128 float32", "CORE-P203", "`pip install core-plugin-gptq`"),
    ],
)
def test_a_checkpoint_that_nothing_reads_names_what_would(site, model, code, said):
    site.install_world()
    error = refusal(site.catalogue(), model={"model": site.model("other", model)})
    assert error.code == code and said in error.hint


def test_a_kind_of_which_nothing_is_installed_is_named_with_a_distribution():
    error = refusal(without("core-plugin-executors"))
    assert (error.code, error.hint) == ("CORE-P203", "`pip install` one of: core-plugin-executors.")


def test_an_older_distribution_without_the_name_is_upgraded():
    old = Entry("core.quantization", "other", "Core_Plugin.AWQ", "0.0.1", "m:A")
    with pytest.raises(CoreError, match="pip install --upgrade core-plugin-awq"):
        Catalogue([old]).find("core.quantization", "awq")


def test_what_the_user_left_out_is_not_recommended():
    error = refusal(Catalogue.scan(["core-plugin-llama", "core-plugin-transformers-bridge"]))
    assert error.code == "CORE-M103" and "pip install" not in error.hint


def test_every_name_of_the_table_gets_an_answer_that_fits_its_state():
    for row in TABLE.rows:
        assert ("`pip install " in advice([row], "x")) == (row.state == "released")


@pytest.mark.parametrize("ask", ["awq", "quantization:awq", "awq@core-plugin-awq"])
def test_plugin_commands_name_the_distribution_too(ask):
    with pytest.raises(CoreError, match="`pip install core-plugin-awq`"):
        named(without("core-plugin-awq"), ask)


# -- hardware ----------------------------------------------------------------------------------------------------------


def machine(root, *devices, files=()):
    for number, (kind, vendor) in enumerate(devices):
        folder = root / f"sys/bus/pci/devices/0000:00:0{number}.0"
        folder.mkdir(parents=True)
        (folder / "class").write_text(f"{kind}\n")
        (folder / "vendor").write_text(f"{vendor}\n")
    for file in files:
        (root / file).parent.mkdir(parents=True, exist_ok=True)
        (root / file).touch()
    return root


CPU = "This machine has a processor: 'cpu' comes with core-plugin-cpu (the host processor): "
CPU += "`pip install core-plugin-cpu`."


@pytest.mark.parametrize(
    ("devices", "files", "seen"),
    [
        ([], [], ""),
        ([("0x030000", "0x1234"), ("0x020000", "0x8086")], [], ""),  # an emulated screen, a network card
        ([("0x030200", "0x10de")], [], "an NVIDIA GPU: 'cuda' comes with core-plugin-cuda"),
        ([], ["dev/nvidiactl"], "an NVIDIA GPU: 'cuda' comes with core-plugin-cuda"),
        ([("0x120000", "0x1002")], [], "an AMD GPU: 'rocm' comes with core-plugin-rocm"),
        ([], ["dev/kfd"], "an AMD GPU: 'rocm' comes with core-plugin-rocm"),
        ([("0x038000", "0x8086")], [], "an Intel GPU: 'xpu' comes with core-plugin-xpu"),
    ],
)
def test_without_a_platform_the_machines_devices_say_what_to_install(tmp_path, devices, files, seen):
    said = platform_advice((), machine(tmp_path, *devices, files=files))
    assert said.endswith(CPU)
    assert said.count("This machine has") == (2 if seen else 1)
    assert seen in said


def test_a_device_that_cannot_be_read_is_passed_over(tmp_path):
    root = machine(tmp_path, ("0x030000", "0x10de"))
    next(root.rglob("vendor")).unlink()
    assert not Hardware("a GPU", "gpu", vendors=("0x10de",)).seen(root)


@pytest.mark.covers("PLAT-01")
def test_a_start_without_platform_names_the_one_for_this_machine():
    error = refusal(without("core-plugin-cpu", "core-plugin-cuda", "core-plugin-rocm", "core-plugin-xpu"))
    assert (error.code, error.message) == ("CORE-P202", "no platform is installed, or every one is disabled.")
    assert error.hint.endswith(CPU)


def test_a_platform_that_is_installed_already_is_not_recommended(tmp_path):
    assert platform_advice(["core-plugin-cpu"], machine(tmp_path)) == ""
    assert refusal(Catalogue.scan(["core-plugin-cpu"])).hint == "See `core plugins list`."
