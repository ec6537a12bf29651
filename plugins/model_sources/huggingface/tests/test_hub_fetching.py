"""Models of the hub: what is fetched, what is said, and what is never said."""

from __future__ import annotations

import errno
import hashlib
import logging
import os
import signal
import threading
import time
from contextlib import suppress
from pathlib import Path

import pytest
from core_plugin_huggingface import remote, resume
from core_plugin_huggingface.cache import HubCache
from core_plugin_huggingface.choice import choose, ggufs
from core_plugin_huggingface.hub import HubSource
from core_plugin_huggingface.local import LocalSource
from core_plugin_huggingface.meter import Meter
from core_plugin_huggingface.reference import parse

from core.api import Access, CheckpointError
from core_testing.tinyhub import TinyRepo

pytestmark = pytest.mark.covers("CLI-05")

WEIGHTS = bytes(range(256)) * 12_000  # 3 MB
NEEDED = {
    "config.json": b"{}",
    "model.safetensors": WEIGHTS,
    "tokenizer.json": b"[]",
    "generation_config.json": b"{}",
    "chat_template.jinja": b"{{ messages }}",
    "1_Pooling/config.json": b"{}",
    "README.md": b"---\nlicense: mit\n---\n",
}
USELESS = {
    "pytorch_model.bin": b"pickle",
    "consolidated.safetensors": b"again",
    "model.fp16.safetensors": b"again",
    "modeling_evil.py": b"import os",
    "onnx/model.onnx": b"o",
    "onnx/config.json": b"{}",
    "training_args.bin": b"p",
    "trainer_state.json": b"{}",
    "small-Q4_K_M.gguf": b"GGUF",
}
TOKEN = "hf_Secret-Of-The_user.1"


def source(**access):
    made = HubSource()
    made.use(Access(**access))
    return made


def fails(code, *words, reference="acme/tiny", revision=None, **access):
    with pytest.raises(CheckpointError) as caught:
        source(**access).resolve(reference, revision=revision)
    text = str(caught.value)
    assert caught.value.code == code, text
    assert "\n" not in text and TOKEN not in text and TOKEN not in repr(caught.value.__cause__)
    for word in words:
        assert word in text
    return caught.value


@pytest.fixture
def tiny(hub):
    hub.repos["acme/tiny"] = TinyRepo({**NEEDED, **USELESS}, refs=("v1",))
    return hub


def names(path):
    return {file.relative_to(path).as_posix(): file.read_bytes() for file in Path(path).rglob("*") if file.is_file()}


def test_only_what_is_needed_is_fetched_and_told(tiny, told):
    files = source(progress=told.update).resolve("acme/tiny")
    assert names(files.path) == NEEDED
    assert (files.name, files.revision) == ("acme/tiny", tiny.repos["acme/tiny"].commit)
    assert Path(files.path) == tiny.cache / "models--acme--tiny" / "snapshots" / files.revision
    total = sum(map(len, NEEDED.values()))
    assert told.calls[-1] == (total, total)
    assert all(0 <= done <= total == of for done, of in told.calls)
    assert not any(one.path.endswith(name) for one in tiny.seen for name in USELESS if name != "onnx/config.json")


def test_what_is_there_is_not_fetched_again(tiny):
    first = source().resolve("acme/tiny")
    before = len(tiny.seen)
    assert source().resolve("hf:acme/tiny").path == first.path
    assert [one.method for one in tiny.seen[before:]] == ["GET"] and "/api/models/" in tiny.seen[before].path
    (Path(first.path) / "tokenizer.json").unlink()
    source().resolve("acme/tiny")
    assert names(first.path) == NEEDED
    assert len(tiny.fetched("model.safetensors")) == 1


def test_a_revision_is_kept_apart(tiny):
    tagged = source().resolve("acme/tiny", revision="v1")
    assert (tiny.cache / "models--acme--tiny" / "refs" / "v1").read_text() == tagged.revision
    assert source().resolve("acme/tiny", revision=tagged.revision).path == tagged.path
    assert source(offline=True).resolve("acme/tiny", revision="v1").path == tagged.path
    fails("CORE-M170", "v2", revision="v2", offline=True)
    fails("CORE-M107", "no revision 'v2'", "--revision", revision="v2")


def test_a_folder_of_its_own(tiny, tmp_path):
    files = source(folder=str(tmp_path / "mine")).resolve("acme/tiny")
    assert files.path.startswith(str(tmp_path / "mine")) and not tiny.cache.exists()


def test_an_interrupted_download_goes_on_where_it_was(tiny, told):
    blob = tiny.cache / "models--acme--tiny" / "blobs" / hashlib.sha256(WEIGHTS).hexdigest()
    blob.parent.mkdir(parents=True)
    part = blob.with_name(blob.name + ".incomplete")
    part.write_bytes(WEIGHTS[:2_000_000])
    files = source(progress=told.update).resolve("acme/tiny")
    assert [one.asked for one in tiny.fetched("model.safetensors")] == ["bytes=2000000-"]
    assert names(files.path) == NEEDED and not part.exists()
    assert told.calls[-1][0] == told.calls[-1][1]


@pytest.mark.parametrize("part", [WEIGHTS, b"x" * len(WEIGHTS), WEIGHTS + b"more"])
def test_a_part_that_is_whole(tiny, part):
    """As it is left by who is interrupted while it is checked."""
    blob = tiny.cache / "models--acme--tiny" / "blobs" / hashlib.sha256(WEIGHTS).hexdigest()
    blob.parent.mkdir(parents=True)
    blob.with_name(blob.name + ".incomplete").write_bytes(part)
    path = source().resolve("acme/tiny").path
    assert (Path(path) / "model.safetensors").read_bytes() == WEIGHTS
    assert len(tiny.fetched("model.safetensors")) == (part != WEIGHTS)


def test_a_part_of_something_else_is_thrown_away(tiny):
    blob = tiny.cache / "models--acme--tiny" / "blobs" / hashlib.sha256(WEIGHTS).hexdigest()
    blob.parent.mkdir(parents=True)
    blob.with_name(blob.name + ".incomplete").write_bytes(b"x" * 1_000_000)
    assert names(source().resolve("acme/tiny").path) == NEEDED
    assert [one.asked for one in tiny.fetched("model.safetensors")] == ["bytes=1000000-", None]


def test_two_starts_fetch_a_file_once(tiny):
    tiny.gate.clear()
    paths = []
    threads = [threading.Thread(target=lambda: paths.append(source().resolve("acme/tiny").path)) for _ in range(2)]
    for thread in threads:
        thread.start()
    while sum(one.method == "HEAD" for one in tiny.seen) < 2 * len(NEEDED) and not tiny.fetched("model.safetensors"):
        threading.Event().wait(0.01)
    tiny.gate.set()
    for thread in threads:
        thread.join(30)
    assert len(set(paths)) == 1 and len(paths) == 2 and names(paths[0]) == NEEDED
    assert len(tiny.fetched("model.safetensors")) == 1


@pytest.mark.parametrize(
    ("files", "code", "words"),
    [
        ({"config.json": b"{}", "pytorch_model.bin": b"x"}, "CORE-M133", ["pickled", ".safetensors"]),
        ({"config.json": b"{}"}, "CORE-M134", ["no .safetensors"]),
        ({"a-Q5_K_S.gguf": b"", "a-Q8_0.gguf": b""}, "CORE-M175", ["Q5_K_S, Q8_0", "acme/tiny:Q5_K_S"]),
    ],
)
def test_weights_that_cannot_be_read_are_not_fetched(hub, files, code, words):
    hub.repos["acme/tiny"] = TinyRepo(files)
    fails(code, *words)
    assert not any("/resolve/" in one.path for one in hub.seen)


GGUFS = {"tiny.Q4_K_M.gguf": b"4", "tiny.q8_0.gguf": b"8", "mmproj-F16.gguf": b"m", "config.json": b"{}"}
GGUFS |= {f"UD/tiny-BF16-0000{part}-of-00002.gguf": b"b%d" % part for part in (1, 2)}


@pytest.mark.parametrize(
    ("written", "files", "model"),
    [
        ("acme/tiny", ["tiny.Q4_K_M.gguf"], "tiny.Q4_K_M.gguf"),
        ("acme/tiny:Q8_0", ["tiny.q8_0.gguf"], "tiny.q8_0.gguf"),
        ("hf:acme/tiny:q8_0", ["tiny.q8_0.gguf"], "tiny.q8_0.gguf"),
        ("acme/tiny:tiny.Q4_K_M.gguf", ["tiny.Q4_K_M.gguf"], "tiny.Q4_K_M.gguf"),
        ("acme/tiny:BF16", sorted(name for name in GGUFS if "BF16" in name), "UD/tiny-BF16-00001-of-00002.gguf"),
    ],
)
def test_one_gguf_model_of_several(written, files, model):
    choice = choose(list(GGUFS), parse(written))
    assert (list(choice.files), choice.model) == (files, model)


def test_a_gguf_file_is_fetched_alone_and_served_by_its_name(hub):
    hub.repos["acme/tiny"] = TinyRepo(GGUFS)
    files = source().resolve("hf:acme/tiny:Q8_0")
    assert (Path(files.path).name, files.name) == ("tiny.q8_0.gguf", "acme/tiny:Q8_0")
    assert names(Path(files.path).parent) == {"tiny.q8_0.gguf": b"8"}
    fails("CORE-M175", "Q4_K_M", "BF16", reference="acme/tiny:Q2_K")
    assert source(offline=True).resolve("acme/tiny:Q8_0").path == files.path
    fails("CORE-M175", "Q8_0", reference="acme/tiny:Q4_K_M", offline=True)


def test_shards_are_those_of_the_index(hub):
    shards = {f"model-0000{part}-of-00002.safetensors": b"s" for part in (1, 2)}
    extra = {"model.safetensors.index.json": b"{}", "adapter_model.safetensors": b"a", "config.json": b"{}"}
    choice = choose([*shards, *extra], parse("acme/tiny"))
    assert set(choice.files) == {*shards, *extra} - {"adapter_model.safetensors"}


@pytest.mark.parametrize(
    "text", ["acme/tiny:", "hf:", "a/b/c", "a--b/c", "a/..", "hf:a/../b", "a/b:../c", "é/b", "a b/c", "hf:" + "a" * 300]
)
def test_other_texts_are_no_references(text):
    assert parse(text) is None
    assert HubSource().resolve(text) is None


@pytest.mark.parametrize(
    ("token", "stored", "environment", "sent"),
    [
        (None, None, None, None),
        (None, "hf_login", None, "hf_login"),
        (None, "hf_login", "hf_environment", "hf_environment"),
        (True, "hf_login", None, "hf_login"),
        ("hf_option", "hf_login", "hf_environment", "hf_option"),
        (False, "hf_login", "hf_environment", None),
    ],
)
def test_which_token_is_sent(tiny, monkeypatch, token, stored, environment, sent):
    if stored:
        tiny.home.mkdir()
        (tiny.home / "token").write_text(f"{stored}\n")
    if environment:
        monkeypatch.setenv("HF_TOKEN", environment)
    source(token=token).resolve("acme/tiny")
    mine = {one.token for one in tiny.seen if "tiny" in one.path}
    assert mine == {sent}


def test_a_stored_token_must_be_there_if_it_is_asked_for(tiny):
    fails("CORE-M172", "--hf-token", "hf auth login", token=True)
    assert not tiny.seen


@pytest.mark.parametrize("text", ["hf_ünsafe", "hf_secret one", "hf_a\x07"])
def test_a_token_that_no_header_can_hold_is_not_quoted(tiny, monkeypatch, text):
    monkeypatch.setenv("HF_TOKEN", text)
    error = fails("CORE-M172")
    assert text not in str(error)


def test_private_and_gated_models(tiny):
    tiny.repos["acme/secret"] = TinyRepo(NEEDED, token=TOKEN)
    tiny.repos["acme/gated"] = TinyRepo(NEEDED, gated=True)
    fails("CORE-M107", "private", "hf auth login", reference="acme/secret")
    fails("CORE-M107", "private", reference="acme/secret", token="hf_other")
    assert source(token=TOKEN).resolve("acme/secret")
    fails("CORE-M171", "terms", "hf auth login", reference="acme/gated")
    assert source(token=TOKEN).resolve("acme/gated")
    fails("CORE-M107", "no such model", reference="acme/nothing", token=TOKEN)


def test_a_token_that_the_hub_refuses(tiny, monkeypatch):
    tiny.refused = (TOKEN,)
    fails("CORE-M172", "--hf-token", token=TOKEN)
    monkeypatch.setenv("HF_TOKEN", TOKEN)
    fails("CORE-M172", "HF_TOKEN", "hf auth login")


def test_a_token_is_in_no_repr():
    assert TOKEN not in repr(Access(token=TOKEN))


def test_offline_nothing_is_asked(tiny, monkeypatch):
    from huggingface_hub import constants

    fails("CORE-M170", "core pull acme/tiny", "offline", offline=True)
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", True)
    fails("CORE-M170", "HF_HUB_OFFLINE")
    assert not tiny.seen


def test_a_copy_is_served_when_the_hub_does_not_answer(tiny, caplog):
    first = source().resolve("acme/tiny")
    tiny.repos.clear()
    with caplog.at_level(logging.WARNING):
        assert source().resolve("acme/tiny").path == first.path
    assert "The copy in the cache is used" in caplog.text
    asked = len(tiny.seen)
    assert source(offline=True).resolve("acme/tiny").path == first.path
    assert len(tiny.seen) == asked


def test_no_network(tiny, monkeypatch):
    from huggingface_hub import constants

    monkeypatch.setattr(constants, "ENDPOINT", "http://127.0.0.1:9")
    fails("CORE-M105", "cannot be fetched", "connect to the network")


def test_a_part_of_a_model_is_not_served_offline(tiny):
    path = Path(source().resolve("acme/tiny").path)
    (path / "config.json").unlink()
    fails("CORE-M174", "config.json", "core pull", offline=True)
    (path / "model.safetensors").unlink()
    (path / "small").write_text("")
    fails("CORE-M174", "weights", offline=True)
    assert list(source().stored()) == []


def test_bytes_are_counted_once(told):
    """A file that comes in pieces, as the client tells them, begins again, and is whole."""
    meter = Meter(10, 110, told.update)
    bar = meter.bar("a")(total=100, initial=20, unit="B")
    with bar:
        bar.update(30)
        bar.update_transfer(30)
        bar.update(-50)
        bar.set_postfix_str("1 MB/s", refresh=False)
    meter.complete("a", 100)
    meter.stop()
    meter.add("a", 1)
    assert told.calls == [(30, 110), (60, 110), (10, 110), (110, 110)]


def test_no_room(tiny, monkeypatch):
    usage = remote.shutil.disk_usage(tiny.home.parent)
    with monkeypatch.context() as patch:
        patch.setattr(remote.shutil, "disk_usage", lambda folder: usage._replace(free=1000))
        fails("CORE-M173", "0.00 GiB are free", "core rm")
    assert not any("/resolve/" in one.path for one in tiny.seen)

    def full(*arguments, **options):
        raise OSError(errno.ENOSPC, "no space")

    monkeypatch.setattr(remote, "hf_hub_download", full)
    fails("CORE-M173", "No space left", "--download-dir")


def test_a_disk_that_fills_up_leaves_a_part_to_go_on_with(tiny, monkeypatch):
    def full(url, file, **options):
        file.write(WEIGHTS[:1_500_000])
        raise OSError(errno.ENOSPC, "no space")

    with monkeypatch.context() as patch:
        patch.setattr(resume, "http_get", full)
        fails("CORE-M173", "No space left", "--download-dir")
    assert names(source().resolve("acme/tiny").path) == NEEDED
    assert [one.asked for one in tiny.fetched("model.safetensors")] == ["bytes=1500000-"]


def test_a_part_that_another_download_takes_away_is_no_part(tmp_path):
    assert remote._size(tmp_path / "gone.incomplete") == 0


def test_who_interrupts_need_not_wait(tiny):
    tiny.gate.clear()
    timer = threading.Timer(0.2, os.kill, (os.getpid(), signal.SIGINT))
    timer.start()
    began = time.monotonic()
    try:
        with pytest.raises(KeyboardInterrupt):
            source().resolve("acme/tiny")
        assert time.monotonic() - began < 30  # who waits for an answer gives up after a minute
    finally:
        timer.join()
        tiny.gate.set()
    assert names(source().resolve("acme/tiny").path) == NEEDED


def test_what_is_kept_and_removed(hub):
    hub.repos["acme/tiny"] = TinyRepo({**NEEDED, **GGUFS})
    hub.repos["acme/other"] = TinyRepo({**NEEDED, "config.json": b"{ }"})
    for reference in ("acme/tiny", "acme/tiny:Q8_0", "acme/tiny:BF16", "acme/other"):
        source().resolve(reference)
    kept = {model.reference: model for model in source().stored()}
    assert set(kept) == {"acme/tiny", "acme/tiny:Q8_0", "acme/tiny:BF16", "acme/other"}
    assert kept["acme/tiny:BF16"].num_bytes == 4 and kept["acme/tiny:Q8_0"].num_bytes == 1
    assert kept["acme/tiny"].num_bytes == sum(map(len, set(NEEDED.values())))  # equal files are stored once
    assert all(source(offline=True).resolve(one.reference).path == one.path for one in kept.values())
    assert source().remove(kept["acme/tiny"]) == kept["acme/tiny"].num_bytes
    assert {model.reference for model in source().stored()} == {"acme/tiny:Q8_0", "acme/tiny:BF16", "acme/other"}
    source().remove(kept["acme/tiny:Q8_0"])
    source().remove(kept["acme/tiny:BF16"])
    assert not (hub.cache / "models--acme--tiny").exists()
    assert names(kept["acme/other"].path) == hub.repos["acme/other"].files


def cached(folder, *repositories, commit="a" * 40, **files):
    """Put repositories into a cache as the hub's client does."""
    for repository in repositories:
        place = folder / f"models--{repository}"
        snapshot = place / "snapshots" / commit
        snapshot.mkdir(parents=True)
        (place / "blobs").mkdir()
        for name, content in {"config.json": b"{}", "model.safetensors": b"xyz", **files}.items():
            (place / "blobs" / name).write_bytes(content)
            (snapshot / name).symlink_to(place / "blobs" / name)


def test_a_copy_of_the_same_commit_stays(tmp_path):
    """Former names and copies of a repository have its commits."""
    left = [f"acme/copy{number}" for number in range(6)]
    cached(tmp_path, *(name.replace("/", "--") for name in left))
    cache = HubCache(str(tmp_path))
    while left:
        gone = left.pop(len(left) // 2)
        assert cache.remove(next(one for one in cache.stored() if one.reference == gone)) == 5
        assert sorted(one.reference for one in cache.stored()) == left
        assert len(list(tmp_path.glob("models--*"))) == len(left)


def test_what_others_have_put_into_the_cache_hides_nothing(tmp_path):
    index = "model.safetensors.index.json"
    cached(tmp_path, "acme--whole", "acme--circles")
    cached(tmp_path, "acme--deep", **{index: b"[" * 100_000})
    cached(tmp_path, "acme--list", **{index: b"[]"})
    cached(tmp_path, "acme--away", **{index: b'{"weight_map": {"a": "../../../x"}}'})
    cached(tmp_path, "acme--nameless", **{".gguf": b""})
    (tmp_path / "models--acme--circles" / "snapshots" / ("a" * 40) / "self").symlink_to("self")
    (tmp_path / "models--file").write_text("x")
    (tmp_path / "models--acme--odd").mkdir()
    (tmp_path / "models--acme--odd" / "snapshots").write_text("x")
    cache = HubCache(str(tmp_path))
    kept = {one.reference: one for one in cache.stored()}
    assert set(kept) == {"acme/whole", "acme/circles", "acme/nameless"}
    with suppress(CheckpointError):
        cache.remove(kept["acme/circles"])
    assert "acme/whole" in {one.reference for one in cache.stored()}


def test_nothing_outside_the_cache_is_removed(hub, tmp_path):
    hub.repos["acme/tiny"] = TinyRepo(NEEDED)
    source().resolve("acme/tiny")
    (model,) = source().stored()
    (tmp_path / "mine").mkdir()
    with pytest.raises(CheckpointError, match="CORE-M178"):
        source().remove(model.model_copy(update={"path": str(tmp_path / "mine")}))
    assert (tmp_path / "mine").is_dir()


def test_what_stays_although_it_should_go_is_told(hub, monkeypatch):
    def refuse(path, **options):
        raise PermissionError(errno.EPERM, "not yours")

    hub.repos["acme/tiny"] = TinyRepo({**NEEDED, **GGUFS})
    source().resolve("acme/tiny")
    (model,) = source().stored()
    with monkeypatch.context() as patch:
        patch.setattr("shutil.rmtree", lambda *arguments, **options: None)
        with pytest.raises(CheckpointError, match="CORE-M178"):
            source().remove(model)
    source().resolve("acme/tiny:Q8_0")
    monkeypatch.setattr(Path, "unlink", refuse)
    with pytest.raises(CheckpointError, match=r"CORE-M178 .*not yours"):
        source().remove(next(one for one in source().stored() if one.reference.endswith("Q8_0")))


def test_names_that_lead_out_of_the_cache_are_left_alone():
    assert set(ggufs(["../../x-Q4_0.gguf", "a/../../y-Q4_0.gguf", "z-Q4_0.gguf"])) == {"Q4_0"}
    choice = choose(["z-Q4_0.gguf", "../x-Q4_1.gguf", "config.json"], parse("acme/tiny"))
    assert choice.files == ("z-Q4_0.gguf",)


@pytest.mark.parametrize("revision", ["../../../../away", "{tmp}/away", "."])
def test_revisions_that_lead_out_of_the_cache_are_not_kept(tmp_path, revision):
    cache = HubCache(str(tmp_path / "cache"))
    revision = revision.format(tmp=tmp_path)
    cache.keep_ref("acme/tiny", revision, "0" * 40)
    assert [path.name for path in tmp_path.rglob("*")] == []
    (tmp_path / "away").write_text("0" * 40)
    assert cache.snapshot("acme/tiny", revision) is None


def test_a_ref_that_is_no_commit_leads_nowhere(tmp_path):
    cache = HubCache(str(tmp_path))
    cache.keep_ref("acme/tiny", None, "../..")
    assert cache.snapshot("acme/tiny", None) is None


@pytest.mark.parametrize("text", ["a" * 300, "hf:" + "a" * 300, "~nobody-of-that-name", "a\0b"])
def test_what_no_path_can_be_is_left_to_others(text):
    with suppress(CheckpointError):  # CORE-M104, of what is plainly a path
        assert LocalSource().resolve(text) is None
