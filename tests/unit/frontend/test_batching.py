"""Texts that come together are tokenised together, and nobody pays for another's text."""

from __future__ import annotations

import asyncio
import random
import threading
from dataclasses import replace

import pytest

from core.api.errors import RequestError
from core.api.sampling_params import SamplingParams
from core.frontend.batching import BATCH_CHARS, INLINE_CHARS, TURN_CHARS, TextBatcher
from core.frontend.conversation import Conversation
from core.frontend.prompts import Truncation
from core.frontend.request import GenerationRequest

LONG = "x" * (INLINE_CHARS + 1)


class Counting:
    """Notes every call; a text's ids are its length and its last character. `gate` holds the threads."""

    def __init__(self):
        self.calls = []
        self.gate = threading.Event()
        self.gate.set()

    def __call__(self, texts, *, add_special_tokens=True):
        here = threading.current_thread() is threading.main_thread()
        self.calls.append((list(texts), add_special_tokens, here))
        if not here:
            assert self.gate.wait(20)
        if any(text.endswith("!") for text in texts):
            raise ValueError(next(text[-9:] for text in texts if text.endswith("!")))
        return [[int(add_special_tokens), len(text), ord(text[-1])] for text in texts]

    @property
    def sizes(self):
        return [len(texts) for texts, _, _ in self.calls]


def ids(text, special=True):
    return [int(special), len(text), ord(text[-1])]


def run(main):
    return asyncio.run(asyncio.wait_for(main(), 30))


async def turns(count=3):
    for _ in range(count):
        await asyncio.sleep(0)


@pytest.mark.covers("REND-03")
def test_fifty_at_once_are_two_calls_and_everybody_gets_their_own():
    async def main():
        encode = Counting()
        batcher = TextBatcher(encode)
        encode.gate.clear()
        texts = [LONG + chr(200 + number) for number in range(50)]
        tasks = [asyncio.ensure_future(batcher.encode([texts[0]]))]
        await turns()  # the thread is idle: the first goes at once
        tasks += [asyncio.ensure_future(batcher.encode([text])) for text in texts[1:]]
        await turns()
        encode.gate.set()
        assert await asyncio.gather(*tasks) == [[ids(text)] for text in texts]
        # A batch is bounded: 49 of these texts are more than one of it.
        assert encode.sizes[0] == 1 and len(encode.calls) == 1 + -(-49 * len(texts[0]) // BATCH_CHARS)
        assert not any(here for _, _, here in encode.calls)
        batcher.close()

    run(main)


@pytest.mark.covers("REND-03")
def test_short_ones_are_not_sent_through_a_thread_unless_many_come_in_one_turn():
    async def main():
        encode = Counting()
        batcher = TextBatcher(encode)
        for text in ("a", "b" * INLINE_CHARS, "c"):
            assert await batcher.encode([text]) == [ids(text)]
            await turns(1)
        assert [here for _, _, here in encode.calls] == [True, True, True]
        encode.calls.clear()
        texts = ["d" * 512 + str(number % 10) for number in range(50)]
        assert await asyncio.gather(*(batcher.encode([text]) for text in texts)) == [[ids(text)] for text in texts]
        here = TURN_CHARS // len(texts[0])
        assert [where for _, _, where in encode.calls] == [True] * here + [False]
        assert encode.sizes[-1] == 50 - here
        batcher.close()

    run(main)


@pytest.mark.covers("REND-03")
def test_a_text_that_fails_costs_its_own_caller():
    async def main():
        encode = Counting()
        batcher = TextBatcher(encode)
        texts = [LONG + end for end in ("a", "b!", "c", "d!", "e")]
        found = await asyncio.gather(*(batcher.encode([text]) for text in texts), return_exceptions=True)
        assert [found[place] for place in (0, 2, 4)] == [[ids(texts[place])] for place in (0, 2, 4)]
        assert [str(found[place])[-2:] for place in (1, 3)] == ["b!", "d!"]
        assert encode.sizes == [5, 1, 1, 1, 1, 1]
        with pytest.raises(ValueError, match="z!"):
            await batcher.encode(["z!"])  # on the spot too
        batcher.close()

    run(main)


def test_those_who_gave_up_are_left_out():
    async def main():
        encode = Counting()
        batcher = TextBatcher(encode)
        encode.gate.clear()
        first = asyncio.ensure_future(batcher.encode([LONG]))
        await turns()
        gone, kept = (asyncio.ensure_future(batcher.encode([LONG + end])) for end in "gk")
        await turns()
        gone.cancel()
        first.cancel()  # its text is being read already; nobody is told
        await turns()
        encode.gate.set()
        assert await kept == [ids(LONG + "k")]
        assert [texts for texts, _, _ in encode.calls] == [[LONG], [LONG + "k"]]
        assert await batcher.encode([LONG]) == [ids(LONG)]  # it goes on
        batcher.close()

    run(main)


def test_very_long_texts_are_passed():
    async def main():
        encode = Counting()
        held = Counting()
        held.gate.clear()

        def either(texts, *, add_special_tokens=True):
            use = held if len(texts[0]) > BATCH_CHARS else encode
            return use(texts, add_special_tokens=add_special_tokens)

        batcher = TextBatcher(either)
        books = [asyncio.ensure_future(batcher.encode(["y" * (BATCH_CHARS + 1)])) for _ in range(2)]
        await turns()
        assert await batcher.encode([LONG]) == [ids(LONG)]
        assert not any(book.done() for book in books)
        held.gate.set()
        await asyncio.gather(*books)
        assert held.sizes == [1, 1]  # each alone
        batcher.close()

    run(main)


def test_closing_lets_those_who_wait_go():
    async def main():
        encode = Counting()
        batcher = TextBatcher(encode)
        encode.gate.clear()
        tasks = [asyncio.ensure_future(batcher.encode([LONG])) for _ in range(3)]
        await turns()
        batcher.close()
        found = await asyncio.gather(*tasks, return_exceptions=True)
        assert all(isinstance(one, asyncio.CancelledError) for one in found)
        encode.gate.set()
        assert await batcher.encode([LONG]) == [ids(LONG)]  # late, but answered
        batcher.close()

    run(main)


@pytest.mark.parametrize("seed", range(6))
def test_whatever_comes_when_everybody_gets_their_own(seed):
    pick = random.Random(seed)

    async def one(batcher, number):
        await turns(pick.randrange(6))
        size = pick.choice([1, 40, 900, INLINE_CHARS + 1, 9000, BATCH_CHARS + 9])
        texts = [chr(100 + pick.randrange(900)) * size for _ in range(pick.choice([0, 1, 1, 3]))]
        special, bad = pick.random() < 0.5, pick.random() < 0.1
        if bad and texts:
            texts[-1] += "!"
            with pytest.raises(ValueError, match="!"):
                await batcher.encode(texts, add_special_tokens=special)
        else:
            found = await batcher.encode(texts, add_special_tokens=special)
            assert found == [ids(text, special) for text in texts]

    async def main():
        batcher = TextBatcher(Counting())
        await asyncio.gather(*(one(batcher, number) for number in range(120)))
        batcher.close()

    run(main)


@pytest.mark.covers("REND-03")
def test_requests_of_a_front_end_come_to_what_they_do_one_by_one(online, tokenizer, monkeypatch):
    calls = []
    encode_batch = tokenizer.encode_batch

    def counting(texts, **named):
        calls.append(len(texts))
        return encode_batch(texts, **named)

    monkeypatch.setattr(tokenizer, "encode_batch", counting)

    async def main():
        llm, _ = online(max_model_len=8192)
        params = SamplingParams(max_tokens=1)
        long = [f"{number} hello " * 300 for number in range(12)]
        prompts = [*long, "short", {"prompt": long[0], "add_special_tokens": False}, {"prompt_token_ids": [5, 6]}]
        requests = [GenerationRequest(prompt=prompt, params=params) for prompt in prompts]
        alone = [llm.model.prepare(request) for request in requests]
        calls.clear()
        together = await asyncio.gather(*map(llm.prepare, requests))
        assert [one.prompt for one in together] == [one.prompt for one in alone]
        assert len(calls) <= 4
        wrong = [GenerationRequest(prompt=text, params=params) for text in (long[1] + "\ud800", "y" * 90_000)]
        found = await asyncio.gather(*map(llm.prepare, wrong), return_exceptions=True)
        assert [(type(one), one.param) for one in found] == [(RequestError, "prompt")] * 2
        chats = [Conversation(messages=[{"role": "user", "content": text}]) for text in long]
        asked = [GenerationRequest(prompt=chat) for chat in chats]
        found = await asyncio.gather(*map(llm.tokenize_chat, asked))
        assert found == [llm.render_chat(request) for request in asked]
        special = GenerationRequest(prompt=replace(chats[0], add_special_tokens=True))
        assert await llm.tokenize_chat(special) == llm.render_chat(special)
        await llm.close()

    run(main)


def test_offsets_of_tokens_point_into_the_prompt(online, tokenizer):
    async def main():
        llm, _ = online()
        params = SamplingParams(max_tokens=1)

        async def told(prompt, **named):
            asked = GenerationRequest(prompt=prompt, params=params, **named)
            prepared = llm.model.prepare(asked)
            return prepared.prompt, await llm.token_offsets(asked, prepared.prompt.ids)

        for prompt in ("hello the world", {"prompt": "hé 日本 x", "add_special_tokens": False}):
            given, places = await told(prompt)
            assert [tokenizer.token(token) for token in given.ids if token < 3] == []
            assert len(places) == len(given.ids)
            if given.text.isascii():
                assert "".join(given.text[first:end] for first, end in places) == given.text
        chat = Conversation(messages=[{"role": "user", "content": "hello <|im_end|> you"}])
        given, places = await told(chat)
        assert len(places) == len(given.ids)
        words = [given.text[first:end] for first, end in places]
        assert "".join(words) == given.text and words == [tokenizer.token(token) for token in given.ids]
        assert (await told([5, 6]))[1] is None
        assert (await told("hello", truncation=Truncation(tokens=2)))[1] is None
        await llm.close()

    run(main)


def test_the_memory_of_long_texts_goes_back(monkeypatch):
    order = []
    monkeypatch.setattr("core.frontend.batching.trim", lambda: order.append("trim"))

    async def main():
        batcher = TextBatcher(lambda texts, add_special_tokens=True: order.append("encode") or [[1] for _ in texts])
        await batcher.encode(["a" * INLINE_CHARS * 2])
        await batcher.encode(["a" * (BATCH_CHARS + 1)])
        batcher.close()

    asyncio.run(main())
    assert order == ["encode", "encode", "trim"]
