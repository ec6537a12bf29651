"""KV connectors: what was saved comes back byte for byte, and a failed step leaves no trace."""

from __future__ import annotations

import random
from collections.abc import Callable
from contextlib import closing
from dataclasses import replace
from functools import partial, wraps

import torch

from core.api.participants import BlockRef
from core_testing.conformance.outcome import checks, require
from core_testing.conformance.subject import Subject
from core_testing.conformance.tools.connector_pair import BLOCKS, ConnectorPair, chain, hashes, moved
from core_testing.conformance.tools.folders import fresh_folder
from core_testing.conformance.tools.options import every_maker

_OPERATIONS = 300


def with_each_options(check: Callable[[ConnectorPair], None], *, groups: int = 1) -> Callable[[Subject], None]:
    """Return a check of a pair with the default options and of one for each sample, each in a fresh directory.

    Args:
        groups: Cache groups of the model.
    """

    @wraps(check)
    def run(subject: Subject) -> None:
        for options in every_maker(subject):
            with fresh_folder() as folder, closing(ConnectorPair(subject, options(folder), groups)) as pair:
                check(pair)

    return run


@with_each_options
def saved_blocks_load_back(pair: ConnectorPair) -> None:
    """Saved, dropped from the device and loaded into other blocks, every layer's bytes are the same."""
    blocks = chain("a", 3)
    pair.keep(blocks)
    require(_promised(pair, blocks) == 3, f"of 3 saved blocks it promises {_promised(pair, blocks)}")
    pair.drop(1, 2, 3)
    elsewhere = [moved(block, 10) for block in blocks]
    pair.fetch(elsewhere)
    pair.require_content(elsewhere, "loaded into other blocks")
    pair.finish()


@partial(with_each_options, groups=2)
def cache_groups_load_back(pair: ConnectorPair) -> None:
    """Of a model with two cache groups both blocks load back, or the one that is wanted; block 0 is never written."""
    blocks = chain("a", 3, groups=2)
    pair.keep(blocks)
    require(_promised(pair, blocks) == 3, f"of 3 saved blocks it promises {_promised(pair, blocks)}")
    pair.drop(0, 1, 2, 3, 4, 5, 6)
    elsewhere = [moved(block, 10) for block in blocks]
    wanted = [replace(block, blocks=(block.blocks[0], 0)) for block in elsewhere[:2]] + elsewhere[2:]
    before = [cache[0].clone() for cache in pair.caches]
    pair.fetch(wanted)
    pair.require_content(wanted, "of two cache groups")
    unchanged = all(torch.equal(cache[0], block) for cache, block in zip(pair.caches, before))
    require(unchanged, "block 0, which stands for no block, was written")
    pair.finish()


@with_each_options
def match_has_no_side_effects(pair: ConnectorPair) -> None:
    """Asking again gives the same answer, and asking alone moves nothing."""
    blocks = chain("a", 3)
    pair.keep(blocks)
    before = pair.engine.stats()
    answers = {_promised(pair, blocks) for _ in range(5)}
    require(len(answers) == 1, f"the same question is answered with {sorted(answers)}")
    require(pair.engine.plan_step() is None, "match alone made it send a message to the worker")
    require(pair.engine.stats() == before, "match changed its figures")


@with_each_options
def match_counts_consecutive_blocks(pair: ConnectorPair) -> None:
    """It promises the stored blocks right behind the local ones, up to the first that it lacks."""
    blocks = chain("a", 3)
    pair.keep(blocks)
    stored, strange = hashes(blocks), hashes(chain("b", 2))
    for asked, local, due in (
        (stored, 0, 3),
        (stored, 1, 2),
        (stored, 3, 0),
        ([*stored[:2], strange[0], stored[2]], 0, 2),
        ([strange[0], *stored], 0, 0),
        ([strange[0], *stored[1:], strange[1]], 1, 2),
        (strange, 0, 0),
        ([], 0, 0),
    ):
        found = pair.engine.match(asked, local)
        require(found == due, f"behind {local} local blocks it promises {found}, stored there are {due}")


@with_each_options
def blocks_count_once_reported(pair: ConnectorPair) -> None:
    """A block is promised only after the worker has reported it."""
    blocks = chain("a", 2)
    pair.engine.save(blocks)
    require(_promised(pair, blocks) == 0, "blocks are promised before their step is planned")
    message = pair.engine.plan_step()
    require(_promised(pair, blocks) == 0, "blocks are promised before the worker has reported them")
    pair.begin(message)
    for block in blocks:
        pair.compute(block)
    pair.finish()
    pair.keep(blocks)
    require(_promised(pair, blocks) == 2, "reported blocks are not promised")


@with_each_options
def failed_steps_leak_nothing(pair: ConnectorPair) -> None:
    """Blocks of steps that died are not promised, and their places can be used again."""
    for number in range(40):
        lost = chain(f"lost {number}", 3)
        pair.engine.save(lost)
        pair.step(lost, fail=True)
    require(_promised(pair, lost) == 0, "blocks of a step that died are promised")
    blocks = chain("kept", 2)
    for _ in range(3):  # a connector may decline while it learns that the steps died
        pair.keep(blocks)
    require(_promised(pair, blocks) == 2, "after steps that died there is no room for further blocks")
    pair.drop(1, 2)
    pair.fetch(blocks)
    pair.require_content(blocks, "after steps that died")
    pair.finish()


@with_each_options
def reset_forgets_everything(pair: ConnectorPair) -> None:
    """After `reset` nothing is promised, blocks on their way included, and new blocks are kept."""
    blocks, coming = chain("a", 2), chain("b", 1, first_block=5)
    pair.keep(blocks)
    pair.engine.save(coming)
    message = pair.engine.plan_step()
    pair.engine.reset()
    pair.begin(message)
    pair.finish()
    require(_promised(pair, blocks) == 0, "stored blocks are promised after a reset")
    require(_promised(pair, coming) == 0, "a block that was on its way is promised after a reset")
    pair.content.clear()
    pair.keep(blocks)
    require(_promised(pair, blocks) == 2, "after a reset nothing is kept any more")
    pair.drop(1, 2)
    pair.fetch(blocks)
    pair.require_content(blocks, "saved again after a reset")
    pair.finish()


@with_each_options
def restarts_keep_the_truth(pair: ConnectorPair) -> None:
    """A connector that is made again with the same options promises nothing but what was saved, and loads just that."""
    blocks = chain("a", 3)
    pair.keep(blocks)
    pair.close()
    second = pair.again()
    count = _promised(second, blocks)
    require(0 <= count <= 3, f"after a restart it promises {count} of 3 blocks")
    require(_promised(second, chain("b", 2)) == 0, "after a restart it promises blocks that were never saved")
    second.fetch(blocks[:count])
    second.require_content(blocks[:count], "after a restart")
    second.finish()
    second.keep(chain("c", 2))
    require(_promised(second, chain("c", 2)) == 2, "after a restart nothing is kept any more")
    second.close()


@with_each_options
def random_operations_keep_the_truth(pair: ConnectorPair) -> None:
    """Whatever engines do in whatever order, what is loaded is what was computed."""
    rng = random.Random(5)
    sequences = [chain(name, 4) for name in "abcdef"]
    for _ in range(_OPERATIONS):
        _random_step(pair, rng, rng.choice(sequences))


@with_each_options
def closes_quietly(pair: ConnectorPair) -> None:
    """Figures are integers, and the worker's half closes twice."""
    pair.keep(chain("a", 1))
    figures = pair.engine.stats()
    plain = all(isinstance(key, str) and isinstance(value, int) for key, value in figures.items())
    require(plain, f"stats gives {figures!r}, due are texts and integers")
    pair.worker.close()
    pair.worker.close()


def _random_step(pair: ConnectorPair, rng: random.Random, sequence: list[BlockRef]) -> None:
    """Run one step of an engine that serves `sequence`: load what is promised, compute and save the rest."""
    places = rng.sample(range(1, BLOCKS), len(sequence))
    blocks = [replace(block, blocks=(place,)) for block, place in zip(sequence, places)]
    local = rng.choice((0, 0, 0, 1))
    for block in blocks[:local]:
        pair.compute(block)
    count = pair.engine.match(hashes(blocks), local)
    require(0 <= count <= len(blocks) - local, f"of {len(blocks) - local} blocks it promises {count}")
    loaded, fresh = blocks[local : local + count], blocks[local + count :]
    if loaded:
        pair.engine.load(loaded)
    if rng.random() < 0.8:
        pair.engine.save(fresh)
    message = pair.engine.plan_step()
    pair.begin(message)
    pair.require_content(loaded, "among random operations")
    if rng.random() < 0.1:
        return  # the step dies
    for block in fresh:
        pair.compute(block)
    pair.finish()
    pair.drop(*rng.sample(range(BLOCKS), 4))


def _promised(pair: ConnectorPair, blocks: list[BlockRef]) -> int:
    return pair.engine.match(hashes(blocks), 0)


CHECKS = checks(
    saved_blocks_load_back,
    cache_groups_load_back,
    match_has_no_side_effects,
    match_counts_consecutive_blocks,
    blocks_count_once_reported,
    failed_steps_leak_nothing,
    reset_forgets_everything,
    restarts_keep_the_truth,
    random_operations_keep_the_truth,
    closes_quietly,
    on_device=True,
)
