"""A repository at the hub: its list of files, and fetching them. Imports the hub's client."""

from __future__ import annotations

import errno
import os
import shutil
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from huggingface_hub import HfApi, constants, get_token, hf_hub_download
from huggingface_hub.errors import (
    GatedRepoError,
    HfHubHTTPError,
    RepositoryNotFoundError,
    RevisionNotFoundError,
)

from core.api import Access, CheckpointError
from core_plugin_huggingface.faults import bad_token, gated, no_room, refused, unreachable
from core_plugin_huggingface.jobs import run_all
from core_plugin_huggingface.meter import Meter
from core_plugin_huggingface.reference import HubReference
from core_plugin_huggingface.resume import RESUMABLE, prefetch

WORKERS = 4
_WRONG_TOKEN = "Invalid credentials"  # how the hub's answer begins, as opposed to that for a model it does not show
_FULL = (errno.ENOSPC, errno.EDQUOT, errno.EROFS, errno.EACCES, errno.EPERM)


@dataclass(frozen=True, slots=True)
class Listing:
    """A revision: its commit and the sizes of its files, in bytes."""

    commit: str
    sizes: dict[str, int]


class Remote:
    """One repository at the hub."""

    def __init__(self, wanted: HubReference, folder: Path, access: Access) -> None:
        self._wanted, self._folder, self._access = wanted, folder, access
        self._token = _token(access.token)

    def listing(self, revision: str | None) -> Listing:
        """Ask what the repository holds. Raises `CheckpointError`."""
        with self._told(revision):
            api = HfApi(token=self._token)
            seconds = constants.HF_HUB_ETAG_TIMEOUT
            found = api.model_info(self._wanted.repo, revision=revision, files_metadata=True, timeout=seconds)
        sizes = {one.rfilename: one.size or 0 for one in found.siblings or ()}
        return Listing(str(found.sha), sizes)

    def fetch(self, listing: Listing, files: Sequence[str]) -> None:
        """Bring files into the cache, several at a time; those that are there are left alone. Raises `CheckpointError`.

        A download that was interrupted goes on where it was.
        """
        repository = self._folder / f"models--{self._wanted.repo.replace('/', '--')}"
        snapshot = repository / "snapshots" / listing.commit
        missing = [name for name in files if not (snapshot / name).exists()]
        if not missing:
            return
        self._require_room(repository, sum(listing.sizes[name] for name in missing))
        here = sum(listing.sizes[name] for name in files if name not in missing)
        meter = Meter(here, sum(listing.sizes[name] for name in files), self._access.progress)
        # The largest first: they decide how long it takes.
        order = sorted(missing, key=lambda name: -listing.sizes[name])
        try:
            with self._told(None):
                run_all([partial(self._fetch, name, listing, meter) for name in order], WORKERS)
        finally:
            meter.stop()

    def _fetch(self, name: str, listing: Listing, meter: Meter) -> None:
        options: dict[str, Any] = {"revision": listing.commit, "cache_dir": self._folder, "token": self._token}
        if listing.sizes[name] >= RESUMABLE:
            prefetch(self._wanted.repo, name, meter=meter, **options)
        hf_hub_download(self._wanted.repo, name, tqdm_class=meter.bar(name), **options)
        meter.complete(name, listing.sizes[name])

    def _require_room(self, repository: Path, needed: int) -> None:
        """Refuse to begin what cannot end. Parts of earlier downloads count as room."""
        parts = sum(map(_size, repository.glob("blobs/*.incomplete")))
        try:
            self._folder.mkdir(parents=True, exist_ok=True)
            free = shutil.disk_usage(self._folder).free + parts
        except OSError as error:
            raise no_room(self._folder, error.strerror or str(error)) from error
        if free < needed:
            raise no_room(self._folder, f"it takes {needed / 2**30:.2f} GiB, {free / 2**30:.2f} GiB are free")

    @contextmanager
    def _told(self, revision: str | None) -> Iterator[None]:
        """Turn what the client raises into one sentence that never holds the token."""
        try:
            yield
        except CheckpointError:
            raise
        except Exception as error:
            raise self._fault(error, revision) from _quiet(error)

    def _fault(self, error: Exception, revision: str | None) -> CheckpointError:
        wanted = self._wanted
        if isinstance(error, GatedRepoError):
            return gated(wanted)
        if isinstance(error, RevisionNotFoundError):
            hint = "Give --revision a branch, tag or commit that exists."
            return refused(wanted, f"it has no revision '{revision or 'main'}'", hint)
        if isinstance(error, RepositoryNotFoundError):
            hint = "Check the spelling, or log in with an account that has access (`hf auth login`)."
            return refused(wanted, "the hub has no such model, or it is private", hint)
        if isinstance(error, HfHubHTTPError) and error.response.status_code in (401, 403):
            return self._denied(error)
        if isinstance(error, OSError) and error.errno in _FULL:
            return no_room(self._folder, os.strerror(error.errno))
        first = str(error).strip().split("\n")[0]
        return unreachable(wanted, f"{type(error).__name__}: {self._clean(first)}" if first else type(error).__name__)

    def _denied(self, error: HfHubHTTPError) -> CheckpointError:
        said = error.response.headers.get("X-Error-Message", "")
        if self._token is False or error.response.status_code == 403:
            why = f"the hub does not let this account read it{f' ({self._clean(said)})' if said else ''}"
            return refused(self._wanted, why, "Use a token of an account that may.")
        which = "--hf-token" if isinstance(self._access.token, str) else "HF_TOKEN or of the login"
        return bad_token(f"the hub refuses the token of {which} (asked for '{self._wanted.written}')")

    def _clean(self, text: str) -> str:
        return text.replace(self._token, "(token)") if isinstance(self._token, str) else text


def _token(asked: str | bool | None) -> str | bool:
    """Return the token to send, or False for none. Raises `CheckpointError` CORE-M172."""
    implicit = asked is None and not constants.HF_HUB_DISABLE_IMPLICIT_TOKEN
    token = get_token() if asked is True or implicit else asked
    if asked is True and not token:
        raise bad_token("--hf-token asks for the stored token, and no login has stored one")
    if isinstance(token, str) and not (token.isascii() and token.isprintable() and " " not in token):
        # The HTTP library would quote it in its complaint.
        raise bad_token("the token of HF_TOKEN or of the login has characters that no token has")
    return token or False


def _quiet(error: Exception) -> Exception | None:
    """Return the cause to show with `--debug`: headers that a client quotes are none."""
    return None if "Bearer" in str(error) else error


def _size(part: Path) -> int:
    """Return the bytes of a part; none if another download has just finished or dropped it."""
    try:
        return part.stat().st_size
    except FileNotFoundError:
        return 0
