"""Checks of the conformance kit on the device. An item is `GROUP:NAME CHECK`."""

from __future__ import annotations

from functools import cache

from part import main


@cache
def _plugins():
    from core_testing.conformance.kit import subjects
    from core_testing.conformance.subject import Shared

    return {subject.title: subject for subject in subjects("", Shared())}


def one(item: str, platform: str, small: bool) -> list[str]:
    """Run a check."""
    from core_testing.conformance import Level
    from core_testing.conformance.kit import jobs
    from core_testing.conformance.outcome import Failed, NotApplicable, Unavailable

    title, _, check = item.partition(" ")
    job = next(job for job in jobs(_plugins()[title], Level.L2) if job.name == check)
    try:
        job.check.function(job.subject)
    except (NotApplicable, Unavailable):
        pass
    except Failed as reason:
        return [str(reason)]
    return []


if __name__ == "__main__":
    main(one)
