"""The server's certificates: read before anything starts, and again when their files change."""

from __future__ import annotations

import asyncio
import logging
import os
import ssl
from pathlib import Path

from core.api.errors import ConfigError
from core.options.server import ServerOptions
from core.server.edge import flag

logger = logging.getLogger(__name__)

LOOK_SECONDS = 2.0
_NEEDED_BY = ("ssl_keyfile", "ssl_ca_certs", "ssl_cert_reqs", "ssl_ciphers", "enable_ssl_refresh")

Signature = tuple[tuple[int, int, int] | None, ...]


class Certificates:
    """TLS context of a listening socket.

    Args:
        options: Names the files.

    Attributes:
        context: For the socket. It hands over to the newest certificates in every handshake, so that connections that
            are open keep those that they began with.

    Raises:
        ConfigError: CORE-C171, a file cannot be used; CORE-C172, the ciphers cannot.
    """

    def __init__(self, options: ServerOptions) -> None:
        self._options = options
        self._seen = self._signature()
        self._newest = self.context = _context(options)
        self.refreshed = options.enable_ssl_refresh
        if self.refreshed:
            self.context.sni_callback = self._choose  # called whether or not the client names the server

    def refresh(self) -> bool:
        """Read the files again if they changed; return whether new certificates are in use.

        Files that do not fit together, as halfway through a renewal, leave the old ones in place.
        """
        found = self._signature()
        if found == self._seen:
            return False
        self._seen = found
        try:
            self._newest = _context(self._options)
        except ConfigError as error:
            logger.warning("the certificates changed and cannot be used; the old ones stay: %s", error.message)
            return False
        logger.info("the certificates changed; new connections get the new ones")
        return True

    async def watch(self) -> None:
        """Look for changes, for ever."""
        while True:
            await asyncio.sleep(LOOK_SECONDS)
            self.refresh()

    def _choose(self, connection: ssl.SSLObject, name: str | None, context: ssl.SSLContext) -> None:
        connection.context = self._newest

    def _signature(self) -> Signature:
        options = self._options
        return tuple(_stamp(path) for path in (options.ssl_certfile, options.ssl_keyfile, options.ssl_ca_certs) if path)


def certificates(options: ServerOptions) -> Certificates | None:
    """Return the certificates of a server that speaks TLS, or None.

    Raises:
        ConfigError: As `Certificates`; CORE-C170, options that do not go together.
    """
    if options.ssl_certfile is None:
        for name in _NEEDED_BY:
            if getattr(options, name):
                raise _contradiction(f"{flag(name)} means nothing without --ssl-certfile.", "Give --ssl-certfile FILE.")
        return None
    if options.uds:
        raise _contradiction(
            "--uds and --ssl-certfile exclude each other: a Unix socket is not encrypted.", "Leave one of them out."
        )
    asks = options.ssl_cert_reqs != ssl.CERT_NONE
    if asks and options.ssl_ca_certs is None:
        text = (
            f"--ssl-cert-reqs {options.ssl_cert_reqs} without --ssl-ca-certs: no client's certificate could be valid."
        )
        raise _contradiction(text, "Give --ssl-ca-certs FILE.")
    if options.ssl_ca_certs is not None and not asks:
        text = "--ssl-ca-certs means nothing with --ssl-cert-reqs 0: clients are asked for no certificate."
        raise _contradiction(text, "Give --ssl-cert-reqs 2 (or 1, where a client may have none).")
    return Certificates(options)


def _context(options: ServerOptions) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.verify_mode = ssl.VerifyMode(options.ssl_cert_reqs)
    context.set_alpn_protocols(["http/1.1"])
    _load_chain(context, str(options.ssl_certfile), options.ssl_keyfile)
    if options.ssl_ca_certs is not None:
        _load_authorities(context, options.ssl_ca_certs)
        # A ticket would let a client in whose authority is not trusted any more.
        context.num_tickets = 0
        context.options |= ssl.OP_NO_TICKET
    if options.ssl_ciphers is not None:
        try:
            context.set_ciphers(options.ssl_ciphers)
        except ssl.SSLError:
            text = f"--ssl-ciphers {options.ssl_ciphers!r} names no cipher that can be used."
            raise ConfigError("CORE-C172", text, hint="`openssl ciphers` lists them.") from None
    return context


def _load_chain(context: ssl.SSLContext, certificate: str, key: str | None) -> None:
    _check_readable("--ssl-certfile", certificate)
    if key is not None:
        _check_readable("--ssl-keyfile", key)
    where = f"{certificate} and {key}" if key is not None else certificate
    try:
        # Without a password of ours, OpenSSL would ask for one on the terminal and wait.
        context.load_cert_chain(certificate, key, password=_no_password)
    except ssl.SSLError as error:
        if error.reason == "KEY_VALUES_MISMATCH":
            raise _unusable(f"the certificate and the key do not belong together: {where}.") from None
        raise _unusable(f"no certificate with its private key, in PEM form, can be read from {where}.") from None


def _load_authorities(context: ssl.SSLContext, path: str) -> None:
    _check_readable("--ssl-ca-certs", path)
    try:
        context.load_verify_locations(path)
    except ssl.SSLError:
        raise _unusable(f"--ssl-ca-certs: {path} holds no certificate in PEM form.") from None


def _check_readable(flag: str, path: str) -> None:
    try:
        with Path(path).open("rb"):
            return
    except OSError as error:
        raise _unusable(f"{flag}: {path} cannot be read: {error.strerror}.") from None


def _no_password() -> str:
    raise _unusable("the private key is encrypted; a server that starts by itself cannot ask for its password.")


def _stamp(path: str) -> tuple[int, int, int] | None:
    try:
        found = os.stat(path)
    except OSError:
        return None
    return found.st_mtime_ns, found.st_size, found.st_ino


def _contradiction(message: str, hint: str) -> ConfigError:
    return ConfigError("CORE-C170", message, hint=hint)


def _unusable(message: str) -> ConfigError:
    return ConfigError("CORE-C171", message, hint="See --ssl-certfile and --ssl-keyfile (docs/administration.md).")
