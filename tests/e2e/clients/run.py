"""Run one client in a process of its own: `python run.py NAME`, with the job as JSON on standard input.

The job has the text of the client's settings from docs/clients.md. The report, JSON on standard output, has for each of
the client's APIs what each check gave; a check that raised has its traceback. Adapters have, for each API, a class that
is made of the names which the settings define, with

- `ask(text, streamed)`: the answer to a question, in the pieces in which it came;
- `loop(tool, streamed)`: a conversation with calls, as the list of its answers;
- `structured()`: by each way that the client has, a city in the form of `CITY_SCHEMA`, as a dict.

An adapter without one of them is of a client that has no such thing.
"""

from __future__ import annotations

import asyncio
import contextlib
import importlib
import json
import socket
import sys
import traceback
from functools import partial

import script


def noted_hosts():
    """Return a set that names every host whose address is looked up from now on."""
    hosts, resolve = set(), socket.getaddrinfo

    def noted(host, *args, **named):
        hosts.add(host.decode() if isinstance(host, bytes) else host)
        return resolve(host, *args, **named)

    socket.getaddrinfo = noted
    return hosts


def loop(client, streamed):
    tool = getattr(client, "tool", script.Warmth)()
    return {"said": [text.strip() for text in client.loop(tool, streamed)], "asked": tool.asked}


def refused(client):
    """Return how the client shows a prompt that is too long for the model."""
    try:
        client.ask(script.TOO_LONG, False)
    except Exception as error:
        status = getattr(error, "status_code", None)
        return {"type": type(error).__name__, "status": status, "text": str(error)}
    return None


def checks(client):
    """Yield the name of each check and what runs it."""
    if hasattr(client, "ask"):
        yield "whole", partial(client.ask, script.WORDS, False)
        yield "streamed", partial(client.ask, script.WORDS, True)
        yield "refused", partial(refused, client)
    if hasattr(client, "loop"):
        yield "loop", partial(loop, client, False)
        yield "loop streamed", partial(loop, client, True)
    if hasattr(client, "structured"):
        yield "structured", client.structured


def attempt(check):
    try:
        return {"gave": check()}
    except Exception:
        return {"failed": traceback.format_exc()}


def main():
    hosts = noted_hosts()
    asyncio.set_event_loop(asyncio.new_event_loop())
    job = json.load(sys.stdin)
    with contextlib.redirect_stdout(sys.stderr):
        adapter = importlib.import_module(f"adapters.{sys.argv[1]}")
        names = adapter.settings(job["settings"]) if hasattr(adapter, "settings") else {}
        if not names:
            exec(compile(job["settings"], "docs/clients.md", "exec"), names)
        apis = {
            api: {name: attempt(check) for name, check in checks(make(names))} for api, make in adapter.APIS.items()
        }
    json.dump({"apis": apis, "hosts": sorted(hosts)}, sys.stdout)


if __name__ == "__main__":
    main()
