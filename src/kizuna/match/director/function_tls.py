"""How match functions and the evaluator are called: plainly, or by TLS, as match.functions_tls* say."""

from __future__ import annotations

import ssl
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

import grpc

from kizuna.errors import SettingsError
from kizuna.store.dialing import expanded

if TYPE_CHECKING:
    from kizuna.settings import MatchSettings


class FunctionTls:
    """Files are read when they are first needed: SettingsError for those that cannot be used."""

    def __init__(self, settings: MatchSettings) -> None:
        self._is_on = settings.functions_tls
        self._ca = expanded(settings.functions_tls_ca_file)
        self._cert = expanded(settings.functions_tls_cert_file)
        self._key = expanded(settings.functions_tls_key_file)

    @cached_property
    def context(self) -> ssl.SSLContext | None:
        """For HTTP. None: without TLS."""
        if not self._is_on:
            return None
        try:
            context = ssl.create_default_context(cafile=self._ca)
            if self._cert:
                # With a password, so that a key that needs one is refused, and nobody is asked for it at a terminal.
                context.load_cert_chain(self._cert, self._key, password="")
        except OSError as error:
            files = ", ".join(filter(None, (self._ca, self._cert, self._key)))
            raise SettingsError(f"match.functions_tls_*: {files} cannot be used: {error}") from error
        return context

    @cached_property
    def credentials(self) -> grpc.ChannelCredentials | None:
        """For gRPC. None: without TLS."""
        if self.context is None:
            return None
        # Where the system has no such file, gRPC has a list of its own.
        ca = self._ca or ssl.get_default_verify_paths().cafile
        return grpc.ssl_channel_credentials(_content(ca), _content(self._key or self._cert), _content(self._cert))


def _content(file: str | None) -> bytes | None:
    return Path(file).read_bytes() if file else None
