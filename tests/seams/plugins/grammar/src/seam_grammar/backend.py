"""`choice` of token sequences, as a JSON list of lists of ids; "slow" and "bad" values show what a compiler may do."""

import json
import time

COMPILED = []


class Words:
    def __init__(self, ctx):
        self.ctx = ctx

    def compile(self, kind, value):
        COMPILED.append(value)
        if value == "bad":
            raise ValueError("there is no sense in it")
        if value.startswith("slow"):
            time.sleep(0.2)
            value = value.removeprefix("slow")
        return Compiled(json.loads(value), self.ctx.tokenizer().eos_ids)


class Compiled:
    def __init__(self, choices, eos_ids):
        self.choices, self.eos_ids = choices, eos_ids

    def matcher(self):
        return Matcher(self)


class Matcher:
    def __init__(self, grammar):
        self.grammar = grammar
        self.said = []

    def open(self):
        return [choice for choice in self.grammar.choices if choice[: len(self.said)] == self.said]

    def fill(self, mask):
        for choice in self.open():
            token = choice[len(self.said)] if len(choice) > len(self.said) else self.grammar.eos_ids[0]
            mask[token // 32] |= 1 << (token % 32) if token % 32 < 31 else -(1 << 31)

    def accept(self, token):
        self.said.append(token)
        return bool(self.open())

    def rollback(self, count):
        del self.said[len(self.said) - count :]

    def is_complete(self):
        return self.said in self.grammar.choices
