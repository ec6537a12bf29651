from pydantic import BaseModel, ConfigDict


class GreetOptions(BaseModel):
    model_config = ConfigDict(extra="forbid")

    word: str = "hello"
