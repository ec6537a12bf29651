"""The descriptors."""

from core.api import ParticipantSpec

SHOP = ParticipantSpec(
    name="shop",
    impl="seam_participant.shop:Shop",
    worker_impl="seam_participant.worker:ShopWorker",
    parts="seam_participant.parts:SHOP",
    api=1,
    summary="Requests wait until the worker has what their caller names",
)
CHOIR = ParticipantSpec(
    name="choir",
    impl="seam_participant.choir:Choir",
    worker_impl="seam_participant.worker:ChoirWorker",
    parts="seam_participant.parts:CHOIR",
    api=1,
    summary="Odd and even tokens take turns, for callers that sing",
)
BRITTLE = ParticipantSpec(
    name="brittle",
    impl="seam_participant.brittle:Brittle",
    worker_impl="seam_participant.brittle_worker:BrittleWorker",
    parts="seam_participant.parts:BRITTLE",
    options="seam_participant.parts:BrittleOptions",
    api=1,
    summary="Raises, or answers the wrong thing, at one moment",
)
MISSPELT = ParticipantSpec(
    name="misspelt", impl="seam_participant.brittle:Misspelt", api=1, summary="Has a moment that is none"
)
