"""Structured output: masks that let exactly the grammar through, matchers that can go back, compilers that end."""

from __future__ import annotations

import json
import random
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import cast

from core_plugin_structured.closing import compiled_value

from core.api.descriptors import StructuredOutputSpec
from core.api.grammars import Grammar
from core.api.structured import GRAMMAR_KINDS, CompiledGrammar, LoadsGrammars, PortableGrammar
from core_testing.conformance.outcome import Failed, Level, NotApplicable, Unavailable, checks, require
from core_testing.conformance.samples import GrammarSample
from core_testing.conformance.subject import Subject
from core_testing.conformance.tools.compiling import compile_apart
from core_testing.conformance.tools.grammar_bench import STANDARD, GrammarBench, Walk, samples_of
from core_testing.conformance.tools.grammar_samples import OBJECTS
from core_testing.conformance.tools.hostile_grammars import HOSTILE

COMPILE_SECONDS = 10.0
"""Processor time within which every grammar is compiled or refused."""

_STEPS = 24
_WALKS = 3


def grammar_kinds_are_known(subject: Subject) -> None:
    """The descriptor names kinds that requests can carry, at least one."""
    kinds = subject.spec(StructuredOutputSpec).grammars
    unknown = sorted(kinds - set(GRAMMAR_KINDS))
    require(not unknown, f"grammars has {', '.join(unknown)}; kinds are {', '.join(GRAMMAR_KINDS)}")
    require(kinds, "it compiles no kind of grammar")


def every_kind_can_be_checked(subject: Subject) -> None:
    """There are texts for each kind of the descriptor, the kit's or the plugin's."""
    known = {sample.kind for sample in subject.samples(GrammarSample)} | set(STANDARD)
    missing = sorted(subject.spec(StructuredOutputSpec).grammars - known)
    if missing:
        raise Unavailable(subject.wants(GrammarSample, f"no texts for {', '.join(missing)}"))


def sentences_are_accepted(subject: Subject) -> None:
    """Every sentence passes, however it is cut into tokens, and is complete at its end."""
    bench = GrammarBench(subject)
    for sample, grammar in _compiled(subject, bench):
        for text in sample.sentences:
            for tokens in bench.tokenizations(text):
                walk = bench.walk(grammar)
                for token in tokens:
                    where = f"'{sample.name}': {text!r}, after {walk.text!r} token {token}"
                    require(token in walk.allowed(), f"{where} is not in the mask")
                    require(walk.accept(token), f"{where} is not accepted")
                require(walk.matcher.is_complete(), f"'{sample.name}': after {text!r} it is not complete")


def other_texts_are_refused(subject: Subject) -> None:
    """A text that is no sentence is stopped on its way, or not complete at its end."""
    bench = GrammarBench(subject)
    for sample, grammar in _compiled(subject, bench):
        for text in sample.others:
            require(not bench.takes(grammar, text), f"'{sample.name}': {text!r} passes for a sentence")


def objects_are_as_open_as_schemas_say(subject: Subject) -> None:
    """Objects have further properties where a schema lets them, and no others where it, or core before, closes them."""
    if "json_schema" not in subject.spec(StructuredOutputSpec).grammars:
        raise NotApplicable("it compiles no schemas")
    bench = GrammarBench(subject)
    for sample in OBJECTS:
        asked = Grammar("json_schema", json.dumps(sample.schema))
        value = compiled_value(asked, additional_properties=sample.open)
        try:
            grammar = bench.backend.compile("json_schema", value)
        except ValueError as error:
            require(not sample.plain, f"it refuses the schema {value}: {error}")
            continue
        for text in sample.takes:
            taken = any(bench.takes(grammar, one) for one in (text, text.replace(" ", "")))
            require(taken, f"the schema {value} does not take {text}")
        for text in sample.refuses:
            require(not bench.takes(grammar, text), f"the schema {value} takes {text}")


def masks_and_accept_agree(subject: Subject) -> None:
    """Tokens that the mask allows are accepted, those that it does not allow are refused, and one may always come."""
    rng = random.Random(1)
    for bench, walk in _walks(subject):
        for _ in walk.stroll(rng, _STEPS):
            allowed = walk.allowed()
            require(allowed, f"after {walk.text!r} nothing may come, not even the end")
            others = sorted(set(range(bench.tokenizer.vocab_size)) - set(allowed) - set(bench.tokenizer.special_ids))
            for token in rng.sample(others, min(3, len(others))):
                refused = not walk.again().accept(token)
                require(refused, f"after {walk.text!r} token {token} is not in the mask, yet it is accepted")


def masks_stay_in_the_vocabulary(subject: Subject) -> None:
    """No mask allows a token without a text: none that only the model has, and no special one but the end."""
    rng = random.Random(2)
    for bench, walk in _walks(subject):
        special = bench.tokenizer.special_ids - set(bench.tokenizer.eos_ids)
        for _ in walk.stroll(rng, _STEPS):
            allowed = walk.allowed()
            beyond = [token for token in allowed if token >= bench.tokenizer.vocab_size]
            require(not beyond, f"after {walk.text!r} tokens {beyond[:3]} are allowed, which the tokenizer lacks")
            wrong = sorted(special & set(allowed))
            require(not wrong, f"after {walk.text!r} special tokens {wrong[:3]} are allowed")


def the_end_is_allowed_when_complete(subject: Subject) -> None:
    """The end of the text is allowed where the text is a sentence, and nowhere else."""
    rng = random.Random(3)
    for bench, walk in _walks(subject):
        ends = set(bench.tokenizer.eos_ids)
        for _ in walk.stroll(rng, _STEPS):
            complete, allowed = walk.matcher.is_complete(), set(walk.allowed())
            state = "complete" if complete else "not complete"
            right = ends <= allowed if complete else not ends & allowed
            require(right, f"{walk.text!r} is {state}, and the end is {'not ' if complete else ''}allowed")


def rollback_takes_back(subject: Subject) -> None:
    """Taken back any number of tokens, a matcher is where it was, and goes on from there."""
    rng = random.Random(4)
    for _, walk in _walks(subject):
        states = []
        for _ in walk.stroll(rng, _STEPS):
            states.append((walk.mask().tolist(), walk.matcher.is_complete()))
        while walk.path:
            count = rng.randint(1, min(7, len(walk.path)))
            walk.matcher.rollback(count)
            lost = walk.path[-count:]
            del walk.path[-count:]
            found = (walk.mask().tolist(), walk.matcher.is_complete())
            require(found == states[len(walk.path)], f"taken back by {count} to {walk.text!r} it is somewhere else")
            again = walk.accept(lost[0])
            require(again, f"taken back to {walk.text!r} it refuses token {lost[0]}, which it accepted before")
            walk.matcher.rollback(1)
            walk.path.pop()
        walk.matcher.rollback(0)


def matchers_share_nothing(subject: Subject) -> None:
    """Two matchers of one grammar go their own ways, and grammars are compiled in other threads meanwhile."""
    rng = random.Random(5)
    bench = GrammarBench(subject)
    with ThreadPoolExecutor(2) as pool:
        for sample, grammar in _compiled(subject, bench):
            others = [pool.submit(bench.backend.compile, sample.kind, sample.value) for _ in range(2)]
            first, second = bench.walk(grammar), bench.walk(grammar)
            start = second.mask().tolist()
            for _ in first.stroll(rng, _STEPS):
                require(second.mask().tolist() == start, f"'{sample.name}': one matcher moves another of its grammar")
            for one in others:
                same = bench.walk(one.result()).mask().tolist() == start
                require(same, f"'{sample.name}': compiled again the grammar allows other tokens at its start")


def bad_grammars_are_value_errors(subject: Subject) -> None:
    """A value that is no grammar is refused with a `ValueError` that says something, when it is compiled."""
    bench, bad = GrammarBench(subject), [(one.kind, value) for one in samples_of(subject) for value in one.bad]
    if not bad:
        raise NotApplicable("no sample has a value that is no grammar")
    for kind, value in bad:
        try:
            bench.backend.compile(kind, value)
        except ValueError as error:
            require(str(error), f"{kind} {value!r} is refused without a word")
            continue
        except Exception as error:
            text = f"{kind} {value!r} raises {type(error).__name__}: {error}, where a ValueError is due"
            raise Failed(text) from error
        raise Failed(f"{kind} {value!r} is compiled, though it is no grammar")


def compiling_is_bounded(subject: Subject) -> None:
    """Grammars made to be hard end: compiled, or refused with a `ValueError`, within ten seconds and 512 MiB each."""
    kinds = sorted(subject.spec(StructuredOutputSpec).grammars & set(HOSTILE))
    hard = [(kind, name, value) for kind in kinds for name, value in HOSTILE[kind].items()]
    for (kind, name, value), fault in zip(hard, compile_apart(subject, hard, COMPILE_SECONDS)):
        require(not fault, f"{kind}, {name} ({value[:40]!r}, {len(value)} characters): {fault}")


def isolated_grammars_travel(subject: Subject) -> None:
    """A grammar that was compiled elsewhere and loaded here allows the same tokens all the way."""
    if not subject.spec(StructuredOutputSpec).isolate:
        raise NotApplicable("it compiles in the engine's own process")
    rng = random.Random(6)
    bench = GrammarBench(subject)
    other = cast(LoadsGrammars, GrammarBench(subject).backend)
    for sample, grammar in _compiled(subject, bench):
        here, there = bench.walk(other.load(cast(PortableGrammar, grammar).dump())), bench.walk(grammar)
        for _ in there.stroll(rng, _STEPS):
            while len(here.path) < len(there.path):
                token = there.path[len(here.path)]
                require(here.accept(token), f"'{sample.name}': loaded, it refuses token {token} after {here.text!r}")
            same = here.mask().tolist() == there.mask().tolist()
            require(same, f"'{sample.name}': after {here.text!r} it allows other tokens once it was loaded")


def tokenizer_waits_until_needed(subject: Subject) -> None:
    """Making a backend does not load the tokenizer, which takes time that a start without grammars need not spend."""
    require(not GrammarBench(subject).loads, "its constructor asks for the tokenizer")


def _compiled(subject: Subject, bench: GrammarBench) -> Iterator[tuple[GrammarSample, CompiledGrammar]]:
    for sample in samples_of(subject):
        yield sample, bench.compile(sample)


def _walks(subject: Subject) -> Iterator[tuple[GrammarBench, Walk]]:
    """Yield some walks through each grammar."""
    bench = GrammarBench(subject)
    for _, grammar in _compiled(subject, bench):
        for _ in range(_WALKS):
            yield bench, bench.walk(grammar)


CHECKS = (
    *checks(grammar_kinds_are_known, level=Level.L0),
    *checks(
        every_kind_can_be_checked,
        sentences_are_accepted,
        other_texts_are_refused,
        objects_are_as_open_as_schemas_say,
        masks_and_accept_agree,
        masks_stay_in_the_vocabulary,
        the_end_is_allowed_when_complete,
        rollback_takes_back,
        matchers_share_nothing,
        bad_grammars_are_value_errors,
        compiling_is_bounded,
        isolated_grammars_travel,
        tokenizer_waits_until_needed,
    ),
)
