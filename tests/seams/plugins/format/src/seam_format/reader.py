"""A made-up format: a line of JSON (configuration, tokenizer, tensor directory), then float32 numbers, negated."""

import json
from dataclasses import dataclass

import tokenizers

from core.api import CheckpointInfo
from core_tokenizers import fast_tokenizer

MAGIC = "vault/1"


class VaultReader:
    def recognises(self, path):
        with path.open("rb") as file:
            return MAGIC.encode() in file.read(64)

    def inspect(self, path):
        header, _ = read(path)
        config = header["config"]
        return CheckpointInfo(
            path=str(path), format="vault", architecture=config["architectures"][0], config=config, num_bytes=1
        )

    def tokenizer(self, path):
        header, _ = read(path)
        backend = tokenizers.Tokenizer.from_str(header["tokenizer"])
        return fast_tokenizer(backend, special={}, chat_template=None, eos_ids=[header["config"]["eos_token_id"]])

    def tensors(self, path, progress):
        header, begin = read(path)
        data = path.read_bytes()
        for name, (shape, offset) in header["tensors"].items():
            yield VaultTensor(name, tuple(shape), data, begin + offset)
            progress(1)


@dataclass
class VaultTensor:
    name: str
    shape: tuple
    data: bytes
    offset: int
    encoding: str = "plain"

    def raw(self):
        import torch

        count = 1
        for size in self.shape:
            count *= size
        return torch.frombuffer(bytearray(self.data), dtype=torch.float32, count=count, offset=self.offset).view(
            self.shape
        )

    def dense(self, dtype):
        return (-self.raw()).to(dtype)


def read(path):
    with path.open("rb") as file:
        line = file.readline()
    return json.loads(line), len(line)


def write(path, config, tokenizer, tensors):
    """Write a model: `tensors` maps names to float32 tensors."""
    directory, blobs, offset = {}, [], 0
    for name, tensor in tensors.items():
        blob = (-tensor).contiguous().numpy().tobytes()
        directory[name] = (list(tensor.shape), offset)
        blobs.append(blob)
        offset += len(blob)
    header = {"format": MAGIC, "config": config, "tokenizer": tokenizer, "tensors": directory}
    head = json.dumps(header).encode()
    head += b" " * (-(len(head) + 1) % 4) + b"\n"
    path.write_bytes(head + b"".join(blobs))
