"""Who sent a request: the user that its body names and the key that it was sent with, as plugins see them."""

from __future__ import annotations

import hashlib

import pytest

from core.api import MAX_USER, Caller, key_id
from core.server.auth import KeyCheck
from core.server.serving.caller import authenticated, caller_of

USER = [{"role": "user", "content": "Hi"}]
KEY, ADMIN = "sk-secret-of-ours", "sk-admin-secret"
CHAT, MESSAGES, RESPONSES = {"messages": USER}, {"messages": USER, "max_tokens": 4}, {"input": "Hi"}


@pytest.mark.parametrize(
    ("path", "body", "user"),
    [
        ("/v1/chat/completions", {**CHAT, "user": "ann"}, "ann"),
        ("/v1/chat/completions", {**CHAT, "user": "ann", "safety_identifier": "bob"}, "bob"),
        ("/v1/chat/completions", {**CHAT, "user": None}, ""),
        ("/v1/chat/completions", {**CHAT, "user": "\u2603" * MAX_USER}, "\u2603" * MAX_USER),
        (
            "/v1/chat/completions",
            {**CHAT, "user": "u" * 1000},
            f"sha256:{hashlib.sha256(b'u' * 1000).hexdigest()}",
        ),
        ("/v1/completions", {"prompt": "a", "user": "ann"}, "ann"),
        ("/v1/completions", {"prompt": ["a", "b"], "n": 2, "user": "ann"}, "ann"),
        ("/v1/messages", {**MESSAGES, "metadata": {"user_id": "ann", "more": 1}}, "ann"),
        ("/v1/messages", {**MESSAGES, "metadata": {}}, ""),
        ("/v1/responses", {**RESPONSES, "user": "ann"}, "ann"),
        ("/v1/responses", {**RESPONSES, "user": "ann", "safety_identifier": "bob"}, "bob"),
    ],
)
@pytest.mark.parametrize("key", [KEY, ADMIN])
def test_every_api_says_who_asks(path, body, user, key, build, llm):
    api = build(llm, api_key=KEY, admin_api_key=ADMIN)
    api.post(path, body, headers={"authorization": f"Bearer {key}"})
    assert llm.requests and {request["caller"] for request in llm.requests} == {Caller(user, key_id(key))}


@pytest.mark.parametrize(
    ("path", "body", "param"),
    [
        ("/v1/chat/completions", {**CHAT, "user": 7}, "user"),
        ("/v1/completions", {"prompt": "a", "safety_identifier": ["a"]}, "safety_identifier"),
        ("/v1/messages", {**MESSAGES, "metadata": {"user_id": 7}}, "metadata.user_id"),
    ],
)
def test_a_user_that_is_no_text_is_refused(path, body, param, api, llm):
    answer = api.post(path, body)
    assert answer.status_code == 400 and param in answer.text and not llm.requests


def test_a_server_without_keys_names_none(api, llm):
    api.post("/v1/chat/completions", CHAT, headers={"authorization": f"Bearer {KEY}"})
    assert llm.requests[-1]["caller"] == Caller()


def test_half_a_character_is_no_users_name():
    assert caller_of("a\ud800b") == Caller("a?b")


def test_the_key_is_that_of_the_request_that_is_answered():
    with authenticated("one"):
        with authenticated("two"):
            assert caller_of("u") == Caller("u", "two")
        assert caller_of() == Caller("", "one")
    assert caller_of() == Caller()


@pytest.mark.parametrize(
    ("headers", "due"),
    [
        ([(b"authorization", f"Bearer {KEY}".encode())], key_id(KEY)),
        ([(b"x-api-key", ADMIN.encode())], key_id(ADMIN)),
        ([(b"x-api-key", b"another")], ""),
        ([], ""),
    ],
)
def test_keys_are_known_by_an_id_that_does_not_hold_them(headers, due):
    assert KeyCheck(KEY, ADMIN).key_of(headers) == due
    assert KeyCheck(None).key_of(headers) == ""
    assert len(key_id(KEY)) == 20 and KEY not in key_id(KEY) and key_id(KEY) != key_id(ADMIN)
