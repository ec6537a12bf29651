"""Large files that go on where an earlier process was interrupted.

The hub's client begins such a file again. Here it is fetched to `blobs/ETAG.incomplete` and put in its place when it is
whole; the client finds it there and does the rest. Files that the hub stores in chunks are left to the client, whose
own store has the chunks.
"""

from __future__ import annotations

import hashlib
import os
import re
from pathlib import Path
from urllib.parse import urlsplit

from huggingface_hub import constants, get_hf_file_metadata, hf_hub_url
from huggingface_hub.file_download import HfFileMetadata, http_get, repo_folder_name
from huggingface_hub.utils import WeakFileLock, build_hf_headers  # type: ignore[attr-defined]
from huggingface_hub.utils._runtime import is_xet_available

from core_plugin_huggingface.meter import Meter

RESUMABLE = 2**20
"""Bytes from which on it is worth the trouble."""
_NAME = re.compile(r"\w[\w-]*", re.ASCII)
_SHA256 = re.compile(r"[0-9a-f]{64}")
_PIECE = 2**20


def prefetch(repo: str, name: str, *, revision: str, cache_dir: Path, token: str | bool, meter: Meter) -> None:
    """Bring one file's content into the cache of the hub's client; its link in the snapshot is not made here.

    Raises what the client raises when the hub cannot be reached.
    """
    url = hf_hub_url(repo, name, revision=revision)
    facts = get_hf_file_metadata(url, token=token, timeout=constants.HF_HUB_ETAG_TIMEOUT)
    chunked = facts.xet_file_data is not None and is_xet_available()
    if chunked or facts.etag is None or facts.size is None or not _NAME.fullmatch(facts.etag):
        return
    folder = repo_folder_name(repo_id=repo, repo_type="model")
    blob = cache_dir / folder / "blobs" / facts.etag
    lock = cache_dir / ".locks" / folder / f"{facts.etag}.lock"
    for needed in (blob, lock):
        needed.parent.mkdir(parents=True, exist_ok=True)
    with WeakFileLock(lock):  # the client's own: whoever comes second finds the file there
        if not blob.exists():
            _download(url, blob, facts, token, name, meter)


def _download(url: str, blob: Path, facts: HfFileMetadata, token: str | bool, name: str, meter: Meter) -> None:
    part = blob.with_name(f"{blob.name}.incomplete")
    size = facts.size or 0
    # Another host is a store with signed addresses, which must not see the token.
    same = urlsplit(facts.location)[:2] == urlsplit(url)[:2]
    headers = build_hf_headers(token=token) if same else {}
    with part.open("ab") as file:
        have = file.tell()
        if have > size:
            file.truncate(have := 0)
        http_get(
            facts.location,
            file,
            resume_size=have,
            headers=headers,
            expected_size=size,
            displayed_filename=name,
            tqdm_class=meter.bar(name),
        )
    if have and _SHA256.fullmatch(blob.name) and _sha256(part) != blob.name:
        part.unlink()  # its first part was of something else: begin again
        meter.add(name, -size)
        return _download(url, blob, facts, token, name, meter)
    os.replace(part, blob)
    return None


def _sha256(path: Path) -> str:
    digest = hashlib.sha256()
    with path.open("rb") as file:
        while piece := file.read(_PIECE):
            digest.update(piece)
    return digest.hexdigest()
