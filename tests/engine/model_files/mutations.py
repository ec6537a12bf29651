"""Damage to the files of a checkpoint: the same sequence for the same seed."""

from __future__ import annotations

import json
import random
import struct
from dataclasses import dataclass
from pathlib import Path
from typing import Any

HOSTILE = (
    *(0, -1, 1, 3, 7, 100_000, 2**20, 2**31 - 1, 2**31, 2**63, 10**30, 10**400),
    *(0.5, 1e-300, 1e300, float("nan"), float("inf"), -1.0),
    *(True, "x", "", None, [], {}, [1], ["x"], {"a": 1}, [2**31], {"rope_type": "linear", "factor": 1e30}),
)
"""Values that a key may be given in place of its own."""

COUNTS = (0, 1, 2, 3, 100, 2**20, 2**31 - 1, 2**31, 2**32 - 1, 2**63 - 1, 2**63, 2**64 - 1)


@dataclass(frozen=True)
class Mutation:
    """One damaged file.

    Attributes:
        label: What was done.
        file: Its name in the checkpoint's folder.
        content: The damaged content.
        key: Key or tensor that was changed, if it was one.
    """

    label: str
    file: str
    content: bytes
    key: str = ""


def mutations(form: str, path: Path, count: int) -> list[Mutation]:
    """Return `count` different mutations of a checkpoint, of every way in turn."""
    rng = random.Random(f"{form}, 1")
    ways = _ways(form, path)
    found: dict[tuple[str, bytes], Mutation] = {}
    while len(found) < count:
        for way in ways:
            one = way(rng)
            found.setdefault((one.file, one.content), one)
    return list(found.values())[:count]


def _ways(form: str, path: Path) -> list[Any]:
    if form == "gguf":
        file = _GGUF(path)
        return [file.value, file.entry, file.start, file.flip, file.cut, file.value, file.entry]
    config = _Json(path / "config.json")
    if "quantization_config" in config.text:
        quantization = _Json(path / "config.json", under="quantization_config")
        weights = _Safetensors(path / "model.safetensors")
        return [quantization.value, quantization.value, weights.entry, config.value]
    first = min(path.glob("*.safetensors"))
    weights, ways = _Safetensors(first), []
    ways += [config.value, config.value, weights.entry, weights.entry, weights.length, weights.flip, weights.cut]
    if form == "sharded":
        index = _Json(path / "model.safetensors.index.json", under="weight_map")
        return [*ways, index.value, index.value, _Json(path / "model.safetensors.index.json").value]
    own = path / "generation_config.json"
    return [*ways, _Json(own).value] if own.exists() else ways


class _Json:
    """A JSON file; `under`: the object in it whose values, and theirs, are changed."""

    def __init__(self, path: Path, under: str = "") -> None:
        self.path, self.text, self.under = path, path.read_text(), under

    def value(self, rng: random.Random) -> Mutation:
        """Give a key another value, or take it out."""
        whole = json.loads(self.text)
        values = whole[self.under] if self.under else whole
        while True:
            key = rng.choice(list(values))
            if not (isinstance(values[key], dict) and values[key] and rng.random() < 0.8):
                break
            values = values[key]
        if rng.random() < 0.05:
            del values[key]
            return Mutation(f"without {key}", self.path.name, json.dumps(whole).encode(), key)
        values[key] = rng.choice(HOSTILE)
        what = f"{key} = {values[key]!r:.40}" if not _huge(values[key]) else f"{key} = 10**400"
        return Mutation(what, self.path.name, json.dumps(whole).encode(), key)


def _huge(value: object) -> bool:
    return isinstance(value, int) and value.bit_length() > 256


class _Safetensors:
    def __init__(self, path: Path) -> None:
        self.path, self.data = path, path.read_bytes()
        self.end = 8 + int.from_bytes(self.data[:8], "little")
        self.header = self.data[8 : self.end]

    def entry(self, rng: random.Random) -> Mutation:
        """Lie about a tensor: its dtype, shape, place or name."""
        header = json.loads(self.header)
        name = rng.choice([one for one in header if one != "__metadata__"])
        field = rng.choice(["dtype", "shape", "data_offsets", "shape", "name", "swap"])
        entry = header[name]
        if field == "dtype":
            entry[field] = rng.choice(["F16", "I32", "I64", "BOOL", "U8", "F8_E4M3", "F4", "x", 5, None, {}])
        elif field in ("shape", "data_offsets"):
            at = rng.randrange(len(entry[field]) + 1)
            entry[field][at : at + rng.randrange(2)] = [rng.choice(HOSTILE)]
        elif field == "name":
            header[rng.choice(["", "x", name + "x", "model.layers.99.mlp.up_proj.weight"])] = header.pop(name)
        else:
            other = rng.choice([one for one in header if one != "__metadata__"])
            header[name], header[other] = header[other], header[name]
        return self._made(f"{field} of {name}", json.dumps(header).encode(), name)

    def length(self, rng: random.Random) -> Mutation:
        """Lie about the header's length."""
        number = rng.choice(COUNTS) if rng.random() < 0.5 else rng.randrange(len(self.data))
        return Mutation(f"header of {number}", self.path.name, struct.pack("<Q", number) + self.data[8:])

    def flip(self, rng: random.Random) -> Mutation:
        """Change bytes of the header."""
        data = bytearray(self.data)
        places = [rng.randrange(self.end) for _ in range(rng.randint(1, 4))]
        for at in places:
            data[at] = rng.randrange(256)
        return Mutation(f"bytes at {places}", self.path.name, bytes(data))

    def cut(self, rng: random.Random) -> Mutation:
        """Cut the file off."""
        return Mutation("cut", self.path.name, self.data[: rng.randrange(len(self.data))])

    def _made(self, label: str, header: bytes, key: str) -> Mutation:
        return Mutation(label, self.path.name, struct.pack("<Q", len(header)) + header + self.data[self.end :], key)


class _GGUF:
    def __init__(self, path: Path) -> None:
        from core_plugin_gguf.header import Header

        header = Header(path)
        self.name, self.data = path.name, path.read_bytes()
        self.keys, self.tensors = list(header), [one.name for one in header.tensors]
        self.end = min(one.offset for one in header.tensors)

    def value(self, rng: random.Random) -> Mutation:
        """Overwrite a metadata value, its type or an array's count."""
        key = rng.choice(self.keys)
        at = self._behind(key)
        kind = struct.unpack_from("<I", self.data, at)[0]
        if rng.random() < 0.15:
            return self._patched(f"type of {key}", at, struct.pack("<I", rng.choice((*range(14), 2**31))), key)
        if kind == 9:
            return self._patched(f"items of {key}", at + 8, struct.pack("<Q", rng.choice(COUNTS)), key)
        if kind == 8:
            return self._patched(f"length of {key}", at + 4, struct.pack("<Q", rng.choice(COUNTS)), key)
        if kind == 6:
            number = rng.choice([0.0, -1.0, 1e-38, 1e38, float("nan"), float("inf"), 0.5, 3.0])
            return self._patched(f"{key} = {number}", at + 4, struct.pack("<f", number), key)
        number = rng.choice(COUNTS) % 2**32
        return self._patched(f"{key} = {number}", at + 4, struct.pack("<I", number), key)

    def entry(self, rng: random.Random) -> Mutation:
        """Overwrite a tensor's dimensions, type or offset."""
        name = rng.choice(self.tensors)
        at = self._behind(name)
        dims = struct.unpack_from("<I", self.data, at)[0]
        field = rng.choice(["dims", "size", "size", "type", "offset", "offset"])
        if field == "dims":
            return self._patched(f"dims of {name}", at, struct.pack("<I", rng.choice(COUNTS) % 2**32), name)
        if field == "type":
            return self._patched(f"type of {name}", at + 4 + 8 * dims, struct.pack("<I", rng.randrange(45)), name)
        if field == "size":
            place, number = at + 4 + 8 * rng.randrange(dims), rng.choice((*COUNTS, 32, 64, 96, 128, 384))
        else:
            place, number = at + 8 + 8 * dims, rng.choice((*COUNTS, *(32 * rng.randrange(4000) for _ in range(9))))
        return self._patched(f"{field} of {name} = {number}", place, struct.pack("<Q", number), name)

    def start(self, rng: random.Random) -> Mutation:
        """Overwrite magic, version or a count."""
        at, size = rng.choice([(0, 4), (4, 4), (8, 8), (16, 8)])
        number = rng.choice(COUNTS) if rng.random() < 0.6 else rng.randrange(200)
        return self._patched(f"start, byte {at} = {number}", at, struct.pack("<Q", number)[:size])

    def flip(self, rng: random.Random) -> Mutation:
        """Change bytes of the header."""
        data = bytearray(self.data)
        places = [rng.randrange(self.end) for _ in range(rng.randint(1, 4))]
        for at in places:
            data[at] = rng.randrange(256)
        return Mutation(f"bytes at {places}", self.name, bytes(data))

    def cut(self, rng: random.Random) -> Mutation:
        """Cut the file off."""
        return Mutation("cut", self.name, self.data[: rng.randrange(len(self.data))])

    def _behind(self, name: str) -> int:
        marker = struct.pack("<Q", len(name)) + name.encode()
        return self.data.index(marker) + len(marker)

    def _patched(self, label: str, at: int, content: bytes, key: str = "") -> Mutation:
        return Mutation(label, self.name, self.data[:at] + content + self.data[at + len(content) :], key)
