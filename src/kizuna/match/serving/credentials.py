"""What a server shows its callers, and asks of them: the certificates that match.tls_* name."""

from __future__ import annotations

import ssl
from typing import TYPE_CHECKING

from kizuna.errors import SettingsError
from kizuna.store.dialing import expanded

if TYPE_CHECKING:
    from kizuna.settings import MatchSettings


def tls_of(settings: MatchSettings) -> ssl.SSLContext | None:
    """None: served without TLS. SettingsError for files that are not there, or are not what they should be."""
    cert, key = expanded(settings.tls_cert_file), expanded(settings.tls_key_file)
    ca = expanded(settings.tls_client_ca_file)
    if cert is None:
        return None
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    try:
        # With a password, so that a key that needs one is refused, and nobody is asked for it at a terminal.
        context.load_cert_chain(cert, key, password="")
    except OSError as error:
        problem = f"match.tls_cert_file = {cert!r} and match.tls_key_file = {key!r} cannot be used together: {error}"
        raise SettingsError(problem) from error
    try:
        if ca:
            context.load_verify_locations(ca)
            context.verify_mode = ssl.CERT_REQUIRED
    except OSError as error:
        raise SettingsError(f"match.tls_client_ca_file = {ca!r} cannot be used: {error}") from error
    return context
