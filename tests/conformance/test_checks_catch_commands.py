"""Each check of commands finds the command that is wrong in its way, and only that check does."""

from __future__ import annotations

import pytest

from core_testing.conformance import Level

MANIFEST = """
from core.api import CommandSpec

SPEC = CommandSpec(name="{name}", impl="PKG.command:Greet", api=1, summary="Say hello")
"""

COMMAND = """
import argparse
import sys
from core.api import PluginError

class Greet:
    def register(self, parser):
        parser.add_argument("name", nargs="?", default="world", help="Whom to greet.")
        parser.add_argument("--times", type=int, default=1, metavar="N", help="How often.")
        {register}

    def run(self, args):
        {run}
        if args.name == "nobody":
            raise PluginError("ACME-1", "there is nobody here.")
        for _ in range(args.times):
            print(f"hello {args.name}")
        return 0 if args.times else 3
"""

SAMPLES = """
from core_testing.conformance import CommandSample

def samples():
    yield CommandSample("twice", lambda folder: ["you", "--times", "2"], says="hello you\\nhello you\\n")
    yield CommandSample("never", lambda folder: ["--times=0"], status=3)
    yield CommandSample("an error", lambda folder: ["nobody"], status=1)
"""

CASES = {
    "its_name_is_free": {"name": "serve", "samples": "def samples(): return []\n"},
    "help_explains_every_argument": {"register": "parser.add_argument('--loud', action='store_true')"},
    "help_needs_no_torch": {"register": "import torch"},
    "common_flags_are_cores": {"register": "parser.add_argument('--quiet', dest='debug', default=0, help='Be quiet.')"},
    "wrong_usage_has_status_2": {"register": "parser.parse_known_args = lambda *a: sys.exit('no-such-flag')"},
    "samples_run": {"run": "if args.name == 'you': return 5"},
}


@pytest.fixture
def command(make_plugin):
    def make(name: str = "greet", samples: str = SAMPLES, **given: str):
        source = COMMAND
        for key in ("register", "run"):
            source = source.replace("{" + key + "}", given.get(key, "pass"))
        modules = {"manifest": MANIFEST.format(name=name), "command": source, "conformance": samples}
        return make_plugin("core.commands", modules, name=name)

    return make


def test_a_sound_command_passes(command):
    report = command().report("commands", "spawn")
    assert (report.failures, report.level) == ([], Level.L1)


def test_a_case_of_one_of_core_s_commands_is_taken(command):
    samples = "def samples(): return []\n"
    assert command(name="bench-disk", samples=samples).failing("commands") == {}
    found = command(name="bench-serve", samples=samples).failing("commands")
    assert found == {"its_name_is_free": "`core bench serve` is core's"}


@pytest.mark.parametrize("check", CASES)
def test_commands(command, check):
    case = CASES[check]
    if check in ("wrong_usage_has_status_2", "help_needs_no_torch"):
        case = {**case, "samples": "def samples(): return []\n"}  # they no longer work, or import torch each time
    assert set(command(**case).failing("commands")) == {check}


@pytest.mark.parametrize(
    ("register", "check", "told"),
    [
        ("parser.add_argument('--debug', help='Mine.')", "common_flags_are_cores", "--debug is core's"),
        ("parser.add_argument('run', help='Mine.')", "common_flags_are_cores", "stored as 'run'"),
        ("parser.add_argument('--load', help='Up to 100% of it.')", "help_explains_every_argument", "cannot be made"),
        (
            "parser.add_subparsers(help='Actions.').add_parser('wave')",
            "help_explains_every_argument",
            "says nothing of wave",
        ),
    ],
)
def test_arguments_that_cannot_be_are_caught(command, register, check, told):
    report = command(register=register).report(checks=(check,))
    assert told in report.failures[0].message


def test_a_traceback_is_caught(command):
    report = command(
        run="if args.times == 0: import traceback; traceback.print_stack(); print('Traceback', file=sys.stderr)"
    ).report(checks=("samples_run",))
    assert "gives a traceback" in report.failures[0].message


NEEDY = "parser.add_argument('--model', required=True, help='A model.'); parser.add_argument('prompt', help='A text.')"
SAYS = """
        from core import LLM, SamplingParams

        with LLM(args.model, dtype="float32", num_blocks=40, threads=1) as llm:
            found = llm.generate([args.prompt], SamplingParams(temperature=0, max_tokens=3, ignore_eos=True))
        print("tokens:", len(found[0].outputs[0].token_ids))
        return 0
"""
WITH_A_MODEL = """
from core_testing.conformance import CommandSample

def samples():
    yield CommandSample(
        "three tokens",
        lambda folder: ["x", "Hello", "--model", str(folder / "model")],
        says="tokens: 3\\n", model={model},
    )
"""


@pytest.mark.covers("PRAC-01")
def test_a_command_with_required_arguments_that_uses_the_llm_passes(command):
    made = command(samples=WITH_A_MODEL.replace("{model}", "True"), register=NEEDY, run=SAYS.strip())
    report = made.report("packaging", "spawn", "commands")
    assert (report.failures, report.level) == ([], Level.L1)


def test_a_command_that_lacks_the_model_fails(command):
    made = command(samples=WITH_A_MODEL.replace("{model}", "False"), register=NEEDY, run=SAYS.strip())
    assert set(made.failing("commands")) == {"samples_run"}


def test_a_command_with_required_arguments_and_no_sample_is_not_shown(command):
    report = command(samples="def samples(): return []\n", register=NEEDY).report("commands")
    (missing,) = report.not_run
    assert missing.checks == ("wrong_usage_has_status_2",) and report.level == Level.L0
    assert "it cannot do without model, prompt: add a CommandSample" in missing.because


def test_a_command_that_swallows_flags_behind_its_arguments_is_caught(command):
    made = command(
        samples=WITH_A_MODEL.replace("{model}", "False"),
        register=NEEDY + "; parser.parse_known_args = lambda *a: sys.exit(0)",
    )
    assert "wrong_usage_has_status_2" in made.failing("commands")
