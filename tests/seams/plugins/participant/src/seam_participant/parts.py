"""What the halves send each other."""

import msgspec
import numpy as np
from pydantic import BaseModel

from core.api import AllowedTokens, Parts


class Orders(msgspec.Struct):
    items: np.ndarray  # (n,) int64
    note: str = "to the shop"


class Stocked(msgspec.Struct):
    items: np.ndarray
    stocked: int


class BrittleOptions(BaseModel):
    at: str = ""
    wrong: str = ""


SHOP = Parts(plan=Orders, result=Stocked)
CHOIR = Parts(late=AllowedTokens)
BRITTLE = Parts(plan=Orders, late=AllowedTokens, result=Stocked, finished=Orders)
