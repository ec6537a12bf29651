"""Errors with a stable code, an owner and a remedy.

Every failure that a user can meet is a `CoreError`: its message says what went wrong, for whom
(plugin and distribution, where one is involved), why, and what to do about it. The command line
prints it as one line; the traceback is shown with `--debug` only.
"""

from __future__ import annotations

from typing import Any

OUT_OF_MEMORY = "CORE-E128"
"""Code of a step for which memory did not suffice."""

DEVICE_LOST = "CORE-E129"
"""Code of a fault after which the device cannot be used by this process."""


class CoreError(Exception):
    """A failure with a stable code.

    Args:
        code: Stable identifier such as `CORE-P101`; documented in `docs/errors.md`.
        message: What happened, to whom, and why; one sentence or a few.
        hint: What the user can do about it; shown after the message.
    """

    def __init__(self, code: str, message: str, *, hint: str = "") -> None:
        super().__init__(message)
        self.code = code
        self.message = message
        self.hint = hint

    def __str__(self) -> str:
        text = f"{self.code} {self.message}"
        return f"{text} {self.hint}" if self.hint else text

    def to_dict(self) -> dict[str, Any]:
        """Return the fields that cross a process boundary."""
        return {"type": type(self).__name__, "code": self.code, "message": self.message, "hint": self.hint}

    @staticmethod
    def from_dict(fields: dict[str, Any]) -> CoreError:
        """Rebuild the error that another process serialised with `to_dict`."""
        kinds = {kind.__name__: kind for kind in (PluginError, ConfigError, CheckpointError, EngineError)}
        kind = kinds.get(fields.get("type", ""), CoreError)
        return kind(fields["code"], fields["message"], hint=fields.get("hint", ""))


class PluginError(CoreError):
    """A plugin is missing, duplicated, incompatible, failed to import, or cannot do what was asked."""


class ConfigError(CoreError):
    """A flag, environment variable or configuration file holds a value that cannot be used."""


class CheckpointError(CoreError):
    """A model reference, file, tensor or architecture cannot be used.

    Args:
        architecture: The model's architecture in Hugging Face's words, from a reader that cannot describe such a model.
            Core adds who implements it from files of another format.
    """

    def __init__(self, code: str, message: str, *, hint: str = "", architecture: str = "") -> None:
        super().__init__(code, message, hint=hint)
        self.architecture = architecture

    def within(self, path: str) -> CheckpointError:
        """Return the error with a file or directory in front; as it is if it names the path already."""
        if path in self.message:
            return self
        text = f"{path}: {self.message}"
        return CheckpointError(self.code, text, hint=self.hint, architecture=self.architecture)


class EngineError(CoreError):
    """The engine failed or is gone; the request that saw it cannot be served."""


class RequestError(ValueError):
    """A request that cannot be served as it is: the client's mistake, a 4xx.

    Args:
        message: What is wrong with which value, and what is allowed.
        param: The request field at fault, as the client spells it.
        code: Short machine-readable reason, for example `context_length_exceeded`.
        status: HTTP status a server answers with.
    """

    def __init__(self, message: str, *, param: str | None = None, code: str | None = None, status: int = 400) -> None:
        super().__init__(message)
        self.message = message
        self.param = param
        self.code = code
        self.status = status

    def reworded(self, message: str, param: str | None) -> RequestError:
        """Return the same error in other words."""
        return RequestError(message, param=param, code=self.code, status=self.status)
