"""Match functions and evaluators that are called by TLS."""

from __future__ import annotations

import ssl
from pathlib import Path
from typing import Any

import grpc
import msgspec
import pytest
import trustme
from grpc import StatusCode
from tests.match.director.directing import match_of, matches_of, open_match, refusal
from tests.match.director.functions import functions_served, proposing

from kizuna.errors import SettingsError
from kizuna.match.director.director import Director
from kizuna.match.matchmaking import Matchmaking
from kizuna.service import running
from kizuna.settings import MatchSettings, Settings


class Certificates:
    """Of a CA: one for functions, and one for who calls them."""

    def __init__(self, folder: Path) -> None:
        self.ca = trustme.CA()
        self.ca_file, self.own_file = folder / "ca.pem", folder / "own.pem"
        self._theirs = self.ca.issue_cert("127.0.0.1")
        self.ca.cert_pem.write_to_path(self.ca_file)
        # The key and the certificate in one file.
        self.ca.issue_cert("director@example.org").private_key_and_cert_chain_pem.write_to_path(self.own_file)

    def of_functions(self, *, callers_need_one: bool = False) -> dict[str, Any]:
        pair = (self._theirs.private_key_pem.bytes(), self._theirs.cert_chain_pems[0].bytes())
        context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
        self._theirs.configure_cert(context)
        if callers_need_one:
            context.load_verify_locations(self.ca_file)
            context.verify_mode = ssl.CERT_REQUIRED
        credentials = grpc.ssl_server_credentials([pair], self.ca.cert_pem.bytes(), callers_need_one)
        return {"credentials": credentials, "tls": context}


@pytest.fixture
def certificates(tmp_path: Path) -> Certificates:
    return Certificates(tmp_path)


@pytest.mark.parametrize("way", ["config", "rest_config"])
async def test_functions_are_called_by_tls(settings: Settings, certificates: Certificates, way: str) -> None:
    trusting: dict[str, Any] = {"functions_tls": True, "functions_tls_ca_file": str(certificates.ca_file)}
    async with functions_served(**certificates.of_functions()) as functions, open_match(settings, **trusting) as om:
        functions.function = proposing(match_of("1", await om.ticket()))

        fetched = await matches_of(om.fetch(config=getattr(functions, way)))

        assert [match.match_id for match in fetched] == ["1"]


@pytest.mark.parametrize("way", ["config", "rest_config"])
async def test_functions_that_ask_for_a_certificate_are_shown_ours(
    settings: Settings, certificates: Certificates, way: str
) -> None:
    files: dict[str, Any] = {
        "functions_tls_ca_file": str(certificates.ca_file),
        "functions_tls_cert_file": str(certificates.own_file),
    }
    theirs = certificates.of_functions(callers_need_one=True)
    async with functions_served(**theirs) as functions, open_match(settings, functions_tls=True, **files) as om:
        functions.function = proposing(match_of("1", await om.ticket()))

        fetched = await matches_of(om.fetch(config=getattr(functions, way)))

        assert [match.match_id for match in fetched] == ["1"]


@pytest.mark.parametrize("way", ["config", "rest_config"])
async def test_functions_of_a_ca_that_we_do_not_trust_are_not_called(
    settings: Settings, certificates: Certificates, tmp_path: Path, way: str
) -> None:
    trustme.CA().cert_pem.write_to_path(tmp_path / "other.pem")
    trusting: dict[str, Any] = {"functions_tls": True, "functions_tls_ca_file": str(tmp_path / "other.pem")}
    async with functions_served(**certificates.of_functions()) as functions, open_match(settings, **trusting) as om:
        functions.function = proposing(match_of("1", await om.ticket()))

        code, text = await refusal(matches_of(om.fetch(config=getattr(functions, way))))

        assert code is StatusCode.UNKNOWN
        assert "127.0.0.1" in text
        assert functions.runs == 0


async def test_the_evaluator_is_asked_by_tls(settings: Settings, certificates: Certificates) -> None:
    trusting: dict[str, Any] = {"functions_tls": True, "functions_tls_ca_file": str(certificates.ca_file)}
    async with (
        functions_served(**certificates.of_functions()) as functions,
        open_match(settings, evaluator_at=functions.address, **trusting) as om,
    ):
        functions.function = proposing(match_of("1", await om.ticket()))

        assert [match.match_id for match in await matches_of(om.fetch(config=functions.config))] == ["1"]


@pytest.mark.parametrize("file", ["ca", "cert"])
async def test_a_file_that_cannot_be_used_is_named_before_anything_starts(
    mm: Matchmaking, tmp_path: Path, file: str
) -> None:
    (tmp_path / "bad.pem").write_text("nonsense")
    settings = msgspec.convert(
        {"functions_tls": True, f"functions_tls_{file}_file": str(tmp_path / "bad.pem")}, MatchSettings
    )

    with pytest.raises(SettingsError, match=r"match\.functions_tls_\*: .*bad\.pem cannot be used"):
        async with running(Director(mm, settings)):
            pass


@pytest.mark.parametrize(
    "told", [{"functions_tls_ca_file": "ca.pem"}, {"functions_tls": True, "functions_tls_key_file": "key.pem"}]
)
def test_files_that_would_not_be_used_are_refused(told: dict[str, Any]) -> None:
    with pytest.raises(SettingsError, match="functions_tls"):
        MatchSettings(**told)
