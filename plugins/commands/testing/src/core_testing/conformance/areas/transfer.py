"""Weight transfer: what is announced is what comes, and an update that cannot be had does no harm."""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor

from core.api.descriptors import WeightTransferSpec
from core.api.weights import WeightManifest, WeightReceiver
from core_testing.conformance.outcome import NotApplicable, checks, require, require_core_error
from core_testing.conformance.samples import TransferSample
from core_testing.conformance.subject import Subject
from core_testing.conformance.tools.interpreters import ask
from core_testing.conformance.tools.options import some_options
from core_testing.conformance.tools.tiny_engine import executor_of, expected, greedy, some_prompts, tiny_config
from core_testing.tinymodels import reference_model

_ENGINE = ("core.engine", "core.worker", "core.server", "core.frontend", "core.plugins", "core.selection.resolver")


def manifest_is_what_comes(subject: Subject) -> None:
    """Names, shapes and dtypes of the manifest are those of the tensors that are streamed, each once."""
    for sample in subject.need_samples(TransferSample):
        receiver, manifest = _begin(subject, sample, _tensors(1), "v1")
        found = [(tensor.name, tuple(tensor.shape), _name(tensor.raw().dtype)) for tensor in receiver.stream()]
        receiver.end()
        names = [name for name, _, _ in found]
        require(len(names) == len(set(names)), f"tensors come twice: {sorted(names)}")
        announced = {name: (tuple(shape), dtype) for name, (shape, dtype) in manifest.tensors.items()}
        streamed = {name: (shape, dtype) for name, shape, dtype in found}
        require(announced == streamed, f"announced is {announced}, streamed {streamed}")
        require(set(names) == set(_tensors(1)), f"sent were {sorted(_tensors(1))}, streamed {sorted(names)}")


def tensors_arrive_unchanged(subject: Subject) -> None:
    """Every tensor has the values that were sent, as stored and in float32."""
    for sample in subject.need_samples(TransferSample):
        sent = _tensors(1)
        receiver, _ = _begin(subject, sample, sent, "v1")
        for tensor in receiver.stream():
            value = sent[tensor.name]
            require(torch.equal(tensor.dense(torch.float32), value.float()), f"{tensor.name} has other values")
            require(tensor.dense(torch.float32).dtype == torch.float32, f"{tensor.name} is not given in float32")
            require(tuple(tensor.shape) == tuple(value.shape), f"{tensor.name} has shape {tensor.shape}")
        receiver.end()


def version_is_reported(subject: Subject) -> None:
    """The manifest has the version that the sender gave, and a second update has its own."""
    for sample in subject.need_samples(TransferSample):
        receiver, first = _begin(subject, sample, _tensors(1), "v1")
        receiver.end()
        second = receiver.begin(sample.send(subject.folder(), _tensors(2), "v2"))
        receiver.end()
        versions = (first.version, second.version)
        require(versions == ("v1", "v2"), f"updates sent as v1 and v2 are reported as {' and '.join(versions)}")


def updates_follow_each_other(subject: Subject) -> None:
    """After `end`, a further update brings its own tensors."""
    for sample in subject.need_samples(TransferSample):
        receiver, _ = _begin(subject, sample, _tensors(1), "v1")
        list(receiver.stream())
        receiver.end()
        sent = _tensors(2)
        receiver.begin(sample.send(subject.folder(), sent, "v2"))
        for tensor in receiver.stream():
            same = torch.equal(tensor.dense(torch.float32), sent[tensor.name].float())
            require(same, f"{tensor.name} of the second update has other values than were sent")
        receiver.end()


def missing_updates_do_no_harm(subject: Subject) -> None:
    """An update that is not there fails with a coded error; `end` is safe, and the next update works."""
    for sample in subject.need_samples(TransferSample):
        receiver: WeightReceiver = subject.impl()(some_options(subject))
        receiver.end()
        require_core_error(receiver.begin, sample.missing, what=f"begin({dict(sample.missing)!r})")
        receiver.end()
        receiver.end()
        receiver.begin(sample.send(subject.folder(), _tensors(1), "v1"))
        count = sum(1 for _ in receiver.stream())
        receiver.end()
        require(count == len(_tensors(1)), f"after a failed update, {count} of {len(_tensors(1))} tensors come")
        require_core_error(_drain, receiver, what="stream() without an open update")


def updates_are_visible_once_committed(subject: Subject) -> None:
    """In a running worker a complete update replaces the weights; one that breaks off leaves the old ones in place."""
    prompts = some_prompts()[:2]
    whole = {name: tensor.detach().clone() for name, tensor in reference_model(seed=1).state_dict().items()}
    part = dict(list(whole.items())[: len(whole) // 2])
    for sample in subject.need_samples(TransferSample):
        config, executor = tiny_config(subject), executor_of(subject)
        try:
            executor.start()
            partial_info = sample.send(subject.folder(), part, "part")
            what = "an update that lacks half of the tensors"
            require_core_error(executor.call, "update_weights", partial_info, what=what)
            require(executor.call("weight_version") == "initial", f"{what} changes the version")
            found, due = greedy(executor, config, prompts, 4), expected(prompts, 4)
            require(found == due, f"after {what} requests get {found}, with the old weights {due}")
            executor.call("update_weights", sample.send(subject.folder(), whole, "v1"))
            require(executor.call("weight_version") == "v1", "after an update sent as v1 the version is another")
            found, due = greedy(executor, config, prompts, 4), expected(prompts, 4, seed=1)
            require(found == due, f"after an update requests get {found}, with the new weights {due}")
        finally:
            executor.close()


def sender_needs_no_engine(subject: Subject) -> None:
    """A trainer can import the sender without the engine, the worker or the server."""
    path = subject.spec(WeightTransferSpec).sender
    if path is None:
        raise NotApplicable("it has no sender")
    facts = ask("imported", {"path": path, "watch": _ENGINE})
    require("error" not in facts, f"importing {path} failed: {facts.get('error')}")
    require(not facts["modules"], f"importing {path} brings {', '.join(facts['modules'][:4])}")


def _begin(
    subject: Subject, sample: TransferSample, tensors: Mapping[str, Tensor], version: str
) -> tuple[WeightReceiver, WeightManifest]:
    receiver: WeightReceiver = subject.impl()(some_options(subject))
    return receiver, receiver.begin(sample.send(subject.folder(), tensors, version))


def _drain(receiver: WeightReceiver) -> None:
    for tensor in receiver.stream():
        tensor.raw()


def _tensors(seed: int) -> dict[str, Tensor]:
    rng = torch.Generator().manual_seed(seed)
    return {
        "model.embed_tokens.weight": torch.randn(11, 6, generator=rng),
        "model.layers.0.self_attn.q_proj.weight": torch.randn(6, 6, generator=rng).to(torch.bfloat16),
        "model.layers.0.self_attn.q_proj.bias": torch.randn(6, generator=rng).to(torch.float16),
        "model.norm.weight": torch.ones(6) * seed,
    }


def _name(dtype: torch.dtype) -> str:
    return str(dtype).removeprefix("torch.")


CHECKS = checks(
    manifest_is_what_comes,
    tensors_arrive_unchanged,
    version_is_reported,
    updates_follow_each_other,
    missing_updates_do_no_harm,
    updates_are_visible_once_committed,
    sender_needs_no_engine,
)
