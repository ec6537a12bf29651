"""What core lends to a command of anybody's: options, tables, an engine, servers, signals and files."""

from __future__ import annotations

import pytest

MANIFEST = """
from core.api import CommandSpec
SPEC = CommandSpec(name="weigh", impl="acme_weigh:Weigh", api=1, summary="Weigh.")
"""

WEIGH = """
class Weigh:
    def bind(self, host):
        self.host = host

    def register(self, parser):
        self.host.options.add(parser)

    def run(self, args):
        options = self.host.options.load(args)
        changed = options.changed({"model.seed": 9})
        rows = [
            ("given", ", ".join(f"{path} by {flag}" for path, flag in self.host.options.given(args).items())),
            ("seed", f"{options.value('model.seed')} {changed.value('model.seed')}"),
            ("from", f"{options.source('model.seed')} {options.source('model.dtype')}"),
            ("flags", " ".join(changed.flags(secrets=False))),
        ]
        print(self.host.terminal.table((), rows))
        with self.host.files.replaced(__import__("pathlib").Path(__file__).with_name("scale")) as file:
            file.write(self.host.terminal.size(2048).encode())
        return 0
"""


@pytest.fixture
def weigh(site):
    def install(source=WEIGH):
        site.install(
            "acme-weigh", {"core.commands": {"weigh": "acme_spec:SPEC"}}, {"acme_weigh": source, "acme_spec": MANIFEST}
        )

    return install


def test_a_command_takes_the_options_of_a_start_and_prints_tables(weigh, site, core):
    weigh()
    status, out, err = core("weigh", "--seed", "3", "--api-key", "secret")
    assert (status, err) == (0, "")
    assert [line.split(maxsplit=1) for line in out.splitlines()] == [
        ["given", "model.seed by --seed, server.api_key by --api-key"],
        ["seed", "3 9"],
        ["from", "flag default"],
        ["flags", "--seed=9"],
    ]
    assert (site.root / "scale").read_bytes() == b"2 KiB"


def test_a_wrong_option_is_the_users_mistake(weigh, core):
    weigh()
    status, _, err = core("weigh", "--seed", "much")
    assert status == 2 and "CORE-C101" in err and "--seed" in err


def test_an_unknown_option_is_the_plugins_mistake(weigh, core):
    weigh(WEIGH.replace("options.value('model.seed')", "options.value('model.sed')"))
    status, _, err = core("weigh")
    assert status == 1 and "CORE-P108 command 'weigh' (acme-weigh 1.0): run() raised KeyError: 'model.sed'" in err


def test_bind_is_held_against_its_contract(weigh, core):
    weigh(WEIGH.replace("def bind(self, host):", "def bind(self):"))
    status, _, err = core("weigh")
    assert status == 1 and "CORE-P160" in err and "bind(host) is called" in err
