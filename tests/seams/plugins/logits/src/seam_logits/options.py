from pydantic import BaseModel


class BanOptions(BaseModel):
    always: list[int] = []
