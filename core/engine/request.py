"""A request as the engine knows it, from arrival to end."""

from __future__ import annotations

from enum import Enum, auto

import numpy as np

from core.api.sampling_params import SamplingParams
from core.engine.messages import Add

Needs = frozenset[tuple[int, int]]
"""Ordered blocks whose arrival is not known yet, as `(number of the step, block)`."""

NOTHING: Needs = frozenset()


class Status(Enum):
    """Where a request stands. A preempted request is WAITING and keeps its row."""

    WAITING = auto()
    RUNNING = auto()
    FINISHED = auto()


class Request:
    """Identity, prompt and parameters; what changes every step lives in the row table.

    Attributes:
        handle: The client's number for it.
        arrival: Strictly increasing order of arrival.
        cache_salt: It shares cached prefixes only with requests of the same salt.
        row: The row it owns from first admission to its end, -1 before.
        num_computed: Tokens whose KV is computed or scheduled; kept by the scheduler for policies.
        hashes: Chained hashes of its full blocks of known tokens.
        caller: Who sent it.
        cached_tokens: Prompt tokens that needed no computation at first admission.
        preemptions: How often it gave way.
        shared_in: Number of the last step that admitted it on blocks of the prefix cache, -1 if none did.
        limit: How many tokens it has at its end, as its task says; set when it joins the line.
        held_ids: Ids that `min_tokens` holds back beside `stop_ids`.
        generated: Tokens that were sampled for it before the worker was told of it: by another engine, or before it
            had to be told anew; output as any other.
        needs: What its blocks and its tokens in flight rest on.
        stranded: Something that it needed did not come: what the prefix cache lacks is computed from now on.
        retold: The worker is to be told of it anew when it is admitted.
        scheduled: When it was scheduled for the first time, on the monotonic clock; 0 before.
        parts: What front halves of participants and the task sent with it, by name.
        extras: Number of a block -> bytes that the hash of that block covers beside its tokens.
        first: No other request that waits has been held back by a participant for so long.
        reusable: Whether cached prefixes may stand in for computation; what needs every position of the prompt says no.
    """

    __slots__ = (
        "arrival",
        "cache_salt",
        "cached_tokens",
        "caller",
        "extras",
        "first",
        "generated",
        "handle",
        "hash_root",
        "hashes",
        "held_ids",
        "limit",
        "needs",
        "num_computed",
        "params",
        "parts",
        "preemptions",
        "priority",
        "prompt",
        "retold",
        "reusable",
        "row",
        "scheduled",
        "shared_in",
        "status",
        "stop_ids",
        "stranded",
    )

    def __init__(self, message: Add, arrival: int, hash_root: bytes) -> None:
        self.handle = message.handle
        self.prompt = np.frombuffer(message.prompt, dtype="<i4")
        self.generated = np.frombuffer(message.generated, dtype="<i4")
        self.params: SamplingParams = message.params
        self.limit = 0
        self.stop_ids = tuple(message.stop_ids)
        self.held_ids = tuple(message.held_ids)
        self.priority = message.priority
        self.arrival = arrival
        self.cache_salt = message.cache_salt
        self.caller = message.caller
        self.hash_root = hash_root
        self.hashes: list[bytes] = []
        self.status = Status.WAITING
        self.row = -1
        self.num_computed = 0
        self.cached_tokens = 0
        self.preemptions = 0
        self.shared_in = -1
        self.needs = NOTHING
        self.stranded = self.retold = self.first = False
        self.parts = message.parts
        self.extras: dict[int, bytes] = {}
        self.scheduled = 0.0
        self.reusable = not self.scored

    @property
    def scored(self) -> bool:
        """Whether log-probabilities of its prompt are wanted."""
        return self.params.prompt_logprobs is not None

    @property
    def num_prompt(self) -> int:
        """Prompt length in tokens."""
        return len(self.prompt)

    @property
    def num_given(self) -> int:
        """Tokens it came with: the prompt's, and those that were generated before."""
        return len(self.prompt) + len(self.generated)
