"""A section that a plugin declares is options like core's: flags, variables, keys of files, help, secrets, faults."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

from core.api.errors import ConfigError, CoreError, PluginError
from core.cli.commands import COMMANDS
from core.cli.tree import commands, whole_parser
from core.config.asked import settings_of
from core.config.fields import fields_by_path, option_fields, without_secrets
from core.config.flags import add_option_flags, to_argv
from core.config.load import load_options
from core.config.parser import CoreParser
from core.config.resolved import EngineConfig, Options
from core.config.section_checks import FLAGS
from core.config.sections import sections
from core.frontend.overrides import options_with
from core.selection.resolver import resolve
from core.server.secrets import HIDDEN, secrets, shown

MANIFEST = """
from core.api import OptionSection

SECTION = OptionSection(name={name!r}, impl={impl!r}, api=1, summary="Options of books", {more})
"""

MODEL = """
from typing import Annotated, Any, Literal
from pydantic import BaseModel, Field, model_validator
from core.api import OptionMarks

class Books(BaseModel):
    '''Books that are lent.'''

    shelf: str = Field("first", min_length=1, description="Shelf that is looked at.")
    most_books: Annotated[int, OptionMarks(aliases=("books-at-once",))] = Field(
        3, ge=1, le=9, description="Books that one reader may have."
    )
    order: Literal["title", "year"] = Field("title", description="How they stand.")
    late_fees: bool = Field(False, description="Whether time costs.")
    readers: list[str] = Field([], description="Who may come.")
    library_key: Annotated[dict[str, dict[str, Any]], OptionMarks(secret=True)] = Field({}, description="Keys.")

    @model_validator(mode="after")
    def _enough(self):
        if self.late_fees and not self.readers:
            raise ValueError("fees need readers")
        return self
"""


@pytest.fixture
def declare(site):
    """`declare(...)`: install a distribution with a section; return what is made of all that are there."""

    def make(model=MODEL, name="books", dist="acme-books", *, impl=None, more="", point=None):
        package = dist.replace("-", "_")
        manifest = MANIFEST.format(name=name, impl=impl or f"{package}_options:Books", more=more)
        points = {"core.option_sections": {point or name: f"{package}_manifest:SECTION"}}
        site.install(dist, points, {f"{package}_manifest": manifest, f"{package}_options": model})
        return sections()

    return make


@pytest.fixture
def books(declare):
    return declare()


def load(*words, **environ):
    parser = CoreParser(prog="core serve")
    add_option_flags(parser, positional_model=True)
    return load_options(parser.parse_args(list(words)), environ)


def test_it_is_known_and_gone_with_its_distribution(books, site):
    assert "books" in books.usable and not books.faults
    assert [field.name for field in option_fields() if field.section == "books"] == [
        *("shelf", "most_books", "order", "late_fees", "readers", "library_key")
    ]
    assert fields_by_path()["books.most_books"].limits == (">= 1", "<= 9")
    assert load().options.books.shelf == "first" and Options().books.most_books == 3
    with pytest.raises(AttributeError):
        _ = Options().papers


@pytest.mark.parametrize(
    ("words", "environ"),
    [
        (["--most-books", "5"], {}),
        (["--most_books=5"], {}),
        (["--books.most-books=5"], {}),
        (["--books-at-once", "5"], {}),
        ([], {"CORE_MOST_BOOKS": "5"}),
        ([], {"CORE_BOOKS_AT_ONCE": "5"}),
    ],
)
def test_flag_and_variable_set_it_by_any_name(books, words, environ):
    loaded = load(*words, **environ)
    assert loaded.options.books.most_books == 5 and loaded.options.books.shelf == "first"
    assert loaded.sources["books.most_books"] == ("flag" if words else f"env {next(iter(environ))}")


@pytest.mark.parametrize("text", ["most_books: 5", "books.most_books: 5", "books: {most-books: 5}", "books-at-once: 5"])
def test_keys_of_files(books, tmp_path, text):
    path = tmp_path / "core.yaml"
    path.write_text(text)
    loaded = load("--config", str(path))
    assert loaded.options.books.most_books == 5 and loaded.sources["books.most_books"] == f"file {path}"
    assert load("--config", str(path), CORE_MOST_BOOKS="6").options.books.most_books == 6


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["--most-books", "10"], "flag --most-books: '10' is not allowed; allowed: an integer >= 1 and <= 9"),
        (["--order", "size"], "flag --order: 'size' is not allowed; allowed: one of title, year"),
        (["--library-key", '{"a": 5}'], "flag --library-key: the value is not allowed; allowed: a mapping name"),
        (["--late-fees"], "section books: fees need readers"),
        (["--papers"], "unknown flag --papers"),
        (["--shelv", "a"], "--shelf"),
    ],
)
def test_what_is_not_allowed_is_told_with_flag_and_limits(books, words, told):
    with pytest.raises(ConfigError) as caught:
        load(*words)
    assert told in str(caught.value)


def test_values_cross_processes_as_plain_data(books):
    given = load("--late-fees", "--readers=ann,ben").options
    text = given.complete().model_dump_json()
    again = Options.model_validate_json(text, context={"received": True})
    assert again == given and again.books.readers == ["ann", "ben"] and again.books.shelf == "first"
    assert to_argv(given) == ["--late-fees", "--readers=ann,ben"]
    assert load(*to_argv(given)).options == given


def test_a_process_that_receives_them_imports_no_model(books, site, tmp_path):
    text = load("--shelf", "last").options.complete().model_dump_json()
    script = (
        "import sys\nfrom core.config.resolved import Options\n"
        "one = Options.model_validate_json(sys.stdin.read(), context={'received': True})\n"
        "print(one.books.shelf, one.books.most_books, 'acme_books_options' in sys.modules)\n"
    )
    done = subprocess.run([sys.executable, "-c", script], input=text, capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["last", "3", "False"]


def test_a_start_carries_every_section(books, site):
    site.only()
    config = resolve(load("--plugin-file", str(site.world()), "--shelf", "last").options).config
    assert EngineConfig.received(config.model_dump_json()).options.books.shelf == "last"
    assert "most_books" in config.options.books.values


def test_arguments_of_llm_and_what_is_no_option(books):
    assert options_with(None, {"most_books": 4}).books.most_books == 4
    assert Options(books={"shelf": "b"}).books.shelf == "b"
    for given in ({"books": {"shelf": ""}}, {"books": 5}, {"papers": {}}):
        with pytest.raises(ValueError):
            Options.model_validate(given)


def test_an_empty_section_is_the_defaults(books):
    assert Options(books={}) == Options() == Options(books={"shelf": "first"}) != Options(books={"shelf": "b"})


def test_secrets_are_hidden_everywhere(books, core, monkeypatch):
    key = json.dumps({"door": {"pin": "abcdefgh"}})
    given = load("--library-key", key).options
    assert to_argv(given, secrets=False) == [] and "library_key" not in without_secrets(given)["books"]
    assert shown(given)["books"]["library_key"] == HIDDEN and "abcdefgh" in secrets(given)
    for words in (("config", "show", "--library-key", key), ("config", "explain", "library_key")):
        monkeypatch.setenv("CORE_LIBRARY_KEY", key)
        assert "abcdefgh" not in core(*words)[1]
    monkeypatch.setenv("CORE_HASH_SEED", "ijklmnop")
    out = core("collect-env")[1]
    assert "CORE_LIBRARY_KEY" in out and "abcdefgh" not in out and "ijklmnop" not in out


def test_help_completion_and_config_show_it(books, core):
    section = core("serve", "--help=books")[1]
    assert section.startswith("books: Books that are lent.\n") and "--[no-]late-fees" in section
    assert "[CORE_MOST_BOOKS, books.most_books, default 3]" in section
    assert "books" in core("serve", "--help")[1] and "--most-books, --books-at-once N" in core("serve", "--help=all")[1]
    assert "one of title, year" in core("config", "explain", "--order")[1]
    assert "books.shelf" in core("config", "show")[1]
    assert ["option section", "books", "acme-books"] in [
        [row["kind"], row["name"], row["distribution"]] for row in json.loads(core("plugins", "list", "--json")[1])
    ]


def test_plugins_get_what_they_name(books):
    options = load("--shelf", "c").options
    assert settings_of(options, ("shelf", "stream_interval"), ("server",)) == {"shelf": "c", "stream_interval": 1}
    for name in ("api_key", "most_papers", "max_num_seqs"):
        with pytest.raises(LookupError, match=name):
            settings_of(options, (name,), ("server",))


# -- sections that cannot be -------------------------------------------------------------------------------------------


def field(name="shelf", hint="str", value='"a"', description='"Shelf."'):
    return (
        "from datetime import date\nfrom typing import Annotated, Any\nfrom pydantic import BaseModel, Field\n"
        "from core.api import OptionMarks\n"
        f"class Books(BaseModel):\n    {name}: {hint} = Field({value}, description={description})\n"
    )


@pytest.mark.parametrize(
    ("given", "told"),
    [
        ({"model": field("port", "int", "5")}, "there is an option 'port' already, of core"),
        ({"model": field("weight_loader")}, "there is an option 'weight_loader' already, of core"),
        ({"model": field("no_offline")}, "there is an option 'no_offline' already, of core"),
        ({"model": field("config")}, "'config' cannot be an option: the name has a meaning already"),
        ({"model": field("log_level")}, "'log_level' cannot be an option: the name has a meaning already"),
        ({"model": field("resolved")}, "'resolved' cannot be an option: the name has a meaning already"),
        ({"model": field("plugin_shelf")}, "'plugin_shelf' cannot be an option: the name has a meaning already"),
        ({"model": field("server")}, "'server' cannot be an option: the name has a meaning already"),
        ({"model": field("Shelf")}, "'Shelf' cannot be an option: it takes small letters, digits and _"),
        (
            {"model": field(hint="Annotated[str, OptionMarks(aliases=('device',))]")},
            "there is an option 'device' already",
        ),
        ({"model": field(hint="Annotated[str, OptionMarks(aliases=('shelf',))]")}, "the option shelf has a name twice"),
        ({"model": field(hint="Annotated[bool, OptionMarks(bare='x')]", value="True")}, "cannot stand without a value"),
        ({"model": field(hint="date", value="None")}, "which has no command-line form"),
        ({"model": field(description="''")}, "the option shelf has no description"),
        ({"model": field(value="...")}, "the option shelf has no default"),
        ({"model": field(hint="int", value="1, ge=2, validate_default=True")}, "greater than or equal to 2"),
        ({"model": "class Books: pass"}, "acme_books_options:Books is no pydantic model"),
        ({"model": "from pydantic import BaseModel\nclass Books(BaseModel): pass"}, "its model has no fields"),
        ({"model": "raise SystemExit(3)"}, "SystemExit"),
        ({"impl": "acme_nothing:Books"}, "acme_nothing"),
        ({"name": "server"}, "there is a section 'server' already"),
        ({"name": "plugins"}, "there is a section 'plugins' already"),
        ({"name": "port"}, "there is an option 'port' already, of core"),
        ({"name": "Books"}, "'Books' cannot be a section"),
        (
            {"more": "needs={'acme.things': ('papers',)}"},
            "needs plugins of acme.things is no option of it: papers",
        ),
        (
            {"more": "needs={'core.models': ('shelf',)}"},
            "can need plugins of core.models, which core chooses",
        ),
        ({"point": "papers"}, "its descriptor is named 'books', its entry point 'papers'"),
        ({"more": "requires=('acme-nothing>=3',)"}, "it needs acme-nothing>=3"),
    ],
)
def test_what_is_wrong_with_a_section_is_told_and_nothing_else_suffers(declare, site, core, given, told):
    before = {one.path for one in option_fields()}
    (fault,) = declare(**given).faults
    assert told in fault.reason
    assert {one.path for one in option_fields()} == before
    site.only()
    resolution = resolve(load("--plugin-file", str(site.world())).options)
    assert any(told in problem.message for problem in resolution.warnings)
    assert fault.code in core("plugins", "list", "--kind", "core.option_sections")[1]
    status, out, _ = core("plugins", "doctor", "acme-books")
    assert status == 1 and fault.code in out


def test_of_two_sections_with_one_option_the_second_is_at_fault_and_names_the_first(declare):
    declare()
    (fault,) = declare(field(), name="papers", dist="bolt-papers").faults
    assert fault.entry.name == "papers" and "'shelf' already, of section 'books' (acme-books 1.0)" in fault.reason
    with pytest.raises(ConfigError, match=r"unknown flag --papers-x.*CORE-P133"):
        load("--papers-x", "1")


def test_two_sections_of_one_name_stop_the_start_with_both_names(declare, site):
    declare()
    declare(field("other"), dist="bolt-books")
    with pytest.raises(PluginError) as caught:
        resolve(load("--plugin-file", str(site.world())).options)
    assert caught.value.code == "CORE-P102" and "acme-books 1.0 and bolt-books 1.0" in caught.value.message


def test_a_hook_may_change_what_nobody_set(books, site):
    site.only()
    world = site.world()
    world.write_text(world.read_text().replace('"scheduler.max_num_seqs", value=8', '"books.most_books", value=7'))
    resolution = resolve(load("--plugin-file", str(world)).options)
    assert resolution.config.options.books.most_books == 7
    world.write_text(world.read_text().replace("value=7", "value=70"))
    with pytest.raises(CoreError, match="CORE-P212"):
        resolve(load("--plugin-file", str(world)).options)


def test_no_flag_of_a_command_of_core_can_be_an_option():
    options = {f"--{name}" for one in option_fields() for name in (*one.names, *(f"no-{name}" for name in one.names))}
    paths = {one.path for one in option_fields()}
    for path, parser in commands(whole_parser()):
        own = {flag for flag in parser._option_string_actions if flag.startswith("--")} - options
        if path.split()[0] in COMMANDS and paths & {action.dest for action in parser._actions}:
            assert own <= {f"--{name}" for name in FLAGS}, path


def test_a_command_keeps_a_flag_that_an_option_of_a_plugin_would_have(books):
    parser = CoreParser(prog="core shelve")
    parser.add_argument("--shelf", type=int)
    add_option_flags(parser)
    given = parser.parse_args(["--shelf", "5", "--most-books", "4"])
    assert given.shelf == 5 and load_options(given, {"CORE_SHELF": "b"}).options.books.shelf == "b"


THINGS = """
from typing import ClassVar
from core.api import Descriptor, Kind

class Spec(Descriptor):
    group: ClassVar[str] = "acme.things"

MINE = Kind(group="acme.things", label="thing", descriptor="acme_things:Spec", option="thing")
LOW = Spec(name="low", impl="x:X", api=1, summary="", priority=10)
HIGH = Spec(name="high", impl="x:X", api=1, summary="", priority=90)
"""


def test_an_option_that_is_set_needs_a_plugin_of_a_kind(declare, site):
    declare(more="needs={'acme.things': ('late_fees', 'readers')}")
    points = {"core.kinds": {"acme.things": "acme_things:MINE"}}
    points["acme.things"] = {"low": "acme_things:LOW", "high": "acme_things:HIGH"}
    site.install("acme-things", points, {"acme_things": THINGS})
    site.only()

    def chosen(*words):
        plan = resolve(load("--plugin-file", str(site.world()), *words).options).config.plan
        return [one.name for one in plan.of("acme.things")]

    assert chosen() == chosen("--shelf", "b") == chosen("--readers=ann", "--thing", "none") == []
    assert chosen("--readers=ann") == ["high"] and chosen("--readers=ann", "--thing", "low") == ["low"]
