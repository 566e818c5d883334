"""`vertexai` against a recording server: addresses of projects and places, credentials and tokens."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import anyio
import anyio.to_thread
import pytest
from google.auth.exceptions import TransportError

from kimi.application.settings.settings import ModelSettings
from kimi.domain.errors import APIConnectionError, ChatProviderError, ModelError
from kimi.infrastructure.http.client import HttpClient
from kimi.infrastructure.models.gemini.generate_content import make_vertex_resolver
from kimi.infrastructure.models.gemini.vertex_access import GoogleAuthTransport
from kimi.infrastructure.models.provider_types import open_model
from tests.support.providers.gemini_client import HISTORY, OK, TOOL, ask, client
from tests.support.providers.provider_server import Recorded, Reply, dumps

pytestmark = pytest.mark.anyio


def service_account(directory: Path, root: str, name: str = "account.json", **more: str | None) -> Path:
    """A file of credentials whose tokens come from the server at `root`."""
    from cryptography.hazmat.primitives import serialization
    from cryptography.hazmat.primitives.asymmetric import rsa

    key = rsa.generate_private_key(public_exponent=65_537, key_size=2048).private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    path = directory / name
    account = {
        "type": "service_account",
        "project_id": "file-project",
        "private_key_id": "k",
        "private_key": key.decode(),
        "client_email": "robot@file-project.iam.example",
        "token_uri": f"{root}/token",
        **more,
    }
    path.write_text(json.dumps(account))
    return path


def with_tokens(*lives: int) -> Any:
    """Answers requests for tokens with tokens that live that many seconds."""
    left = list(lives)

    def choose(request: Recorded) -> Reply:
        if request.path != "/token":
            return OK
        body = {"access_token": f"token-{len(left)}", "expires_in": left.pop(0), "token_type": "Bearer"}
        return Reply(body=dumps(body))

    return choose


async def test_vertex_express_mode_uses_the_api_key() -> None:
    async with client() as to:
        await ask(to.model("vertexai"), HISTORY, [TOOL])
        (request,) = to.server.requests
    assert request.path == "/v1beta1/publishers/google/models/gemini-2.5-pro:streamGenerateContent?alt=sse"
    assert request.headers["x-goog-api-key"] == "the-secret-key"


@pytest.mark.spec("R-77")
async def test_vertex_uses_the_service_account_of_the_provider_environment(tmp_path: Path) -> None:
    async with client() as to:
        to.server.choose = with_tokens(3600)
        variables = {
            "GOOGLE_APPLICATION_CREDENTIALS": str(service_account(tmp_path, to.root)),
            "GOOGLE_CLOUD_PROJECT": "my-project",
            "GOOGLE_CLOUD_LOCATION": "europe-west4",
        }
        model = to.model("vertexai", api_key="", env=variables)
        await ask(model)
        await ask(model)
        token, *requests = to.server.requests
    assert token.path == "/token"
    path = "/v1beta1/projects/my-project/locations/europe-west4/publishers/google/models/gemini-2.5-pro"
    assert [request.path for request in requests] == [f"{path}:streamGenerateContent?alt=sse"] * 2
    assert {request.headers["authorization"] for request in requests} == {"Bearer token-1"}
    assert not any("x-goog-api-key" in request.headers for request in requests)


async def test_token_is_renewed_before_expiry_and_project_may_come_from_file(tmp_path: Path) -> None:
    async with client() as to:
        to.server.choose = with_tokens(60, 3600)
        environ = {"GOOGLE_APPLICATION_CREDENTIALS": str(service_account(tmp_path, to.root))}
        model = to.model("vertexai", environ, api_key="", model="anthropic/claude-x")
        for _ in range(3):
            await ask(model)
        requests = [request for request in to.server.requests if request.path != "/token"]
    assert [request.headers["authorization"] for request in requests] == ["Bearer token-2", *["Bearer token-1"] * 2]
    assert requests[0].path.startswith("/v1beta1/projects/file-project/locations/global/publishers/anthropic/models/")


def test_vertex_without_extra_is_refused_naming_it_and_express_mode_works() -> None:
    code = """
import sys
sys.modules["google"] = None
from kimi.application.settings.settings import ModelSettings
from kimi.domain.errors import ConfigError
from kimi.infrastructure.http.client import HttpClient
from kimi.infrastructure.models.provider_types import make_model_opener
settings = ModelSettings(provider_name="p", type="vertexai", model="m", base_url="https://aiplatform.googleapis.com")
make_model_opener(settings.model_copy(update={"api_key": "k"}), HttpClient({}), "2", {})
try:
    make_model_opener(settings, HttpClient({}), "2", {})
except ConfigError as error:
    assert "kimi-wire[vertex]" in str(error)
else:
    raise AssertionError("not refused")
"""
    outcome = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert outcome.returncode == 0, outcome.stderr


@pytest.mark.parametrize(
    ("location", "host"),
    [("", "aiplatform.googleapis.com"), ("us-central1", "us-central1-aiplatform.googleapis.com")],
)
async def test_google_location_determines_the_host(tmp_path: Path, location: str, host: str) -> None:
    async with client() as to:
        to.server.choose = with_tokens(3600)
        environ = {"GOOGLE_CLOUD_LOCATION": location, "GOOGLE_CLOUD_PROJECT": "p"}
        environ["GOOGLE_APPLICATION_CREDENTIALS"] = str(service_account(tmp_path, to.root))
        base = "https://aiplatform.googleapis.com"
        settings = ModelSettings(provider_name="p", type="vertexai", model="m", base_url=base)
        address = await make_vertex_resolver(settings, to.http, environ)()
    place = location or "global"
    assert address.url.startswith(f"https://{host}/v1beta1/projects/p/locations/{place}/publishers/google/models/m:")


async def test_default_credentials_are_used_when_none_are_configured(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with client() as to:
        to.server.choose = with_tokens(3600)
        service_account(tmp_path, to.root, "application_default_credentials.json")
        monkeypatch.setenv("CLOUDSDK_CONFIG", str(tmp_path))
        for name in ("GOOGLE_APPLICATION_CREDENTIALS", "GOOGLE_CLOUD_PROJECT", "GCLOUD_PROJECT"):
            monkeypatch.delenv(name, raising=False)
        await ask(to.model("vertexai", api_key=""))
        request = to.server.requests[-1]
    assert request.headers["authorization"] == "Bearer token-1"
    assert request.path.startswith("/v1beta1/projects/file-project/locations/global/")


async def test_missing_project_is_an_error_with_advice(tmp_path: Path) -> None:
    async with client() as to:
        to.server.choose = with_tokens(3600)
        variables = {"GOOGLE_APPLICATION_CREDENTIALS": str(service_account(tmp_path, to.root, project_id=None))}
        with pytest.raises(ChatProviderError, match="set GOOGLE_CLOUD_PROJECT in the env of provider 'p'"):
            await ask(to.model("vertexai", api_key="", env=variables))


async def test_refused_credentials_are_a_final_error(tmp_path: Path) -> None:
    async with client(Reply(status=400, body=b'{"error":"invalid_grant","error_description":"Who are you?"}')) as to:
        variables = {"GOOGLE_APPLICATION_CREDENTIALS": str(service_account(tmp_path, to.root))}
        with pytest.raises(ChatProviderError, match=r"No access token for Google Cloud: .*invalid_grant") as raised:
            await ask(to.model("vertexai", api_key="", env=variables))
    assert not raised.value.transient


async def test_missing_credentials_file_is_named() -> None:
    async with client() as to:
        variables = {"GOOGLE_APPLICATION_CREDENTIALS": "/missing/robot.json"}
        with pytest.raises(ChatProviderError, match="read: No such file or directory: /missing/robot"):
            await ask(to.model("vertexai", api_key="", env=variables))


async def test_token_fetch_failures_are_reported(tmp_path: Path) -> None:
    async with client() as to:
        variables = {"GOOGLE_APPLICATION_CREDENTIALS": str(service_account(tmp_path, "http://127.0.0.1:1"))}
        with pytest.raises(APIConnectionError, match="No access token for Google Cloud"):
            await ask(to.model("vertexai", api_key="", env=variables))


async def test_transport_keeps_the_timeout_of_the_library() -> None:
    async with client(Reply(fault="mute")) as to:
        with pytest.raises(TransportError, match=r"no answer within 0\.2 seconds"), anyio.fail_after(4):
            await anyio.to_thread.run_sync(lambda: GoogleAuthTransport(to.http)(to.root, timeout=0.2))


async def test_unusable_proxy_is_reported_before_a_token_is_requested(tmp_path: Path) -> None:
    http = HttpClient({"HTTP_PROXY": "ftp://proxy"})
    variables = {"GOOGLE_APPLICATION_CREDENTIALS": str(service_account(tmp_path, "http://127.0.0.1:1"))}
    settings = ModelSettings(provider_name="p", type="vertexai", model="m", base_url="http://x", env=variables)
    with pytest.raises(ChatProviderError, match=r"^The proxy in the environment"):
        await ask(open_model(settings, "s", http, lambda: "", {}))


ODD_EXPIRY = '{"type":"authorized_user","client_id":"a","client_secret":"b","refresh_token":"c","expiry":5}'


@pytest.mark.parametrize("content", [None, "{not json", "{}", ODD_EXPIRY])
async def test_unreadable_credentials_are_reported(tmp_path: Path, content: str | None) -> None:
    path = tmp_path / "account.json"
    if content is not None:
        path.write_text(content)
    async with client() as to:
        variables = {"GOOGLE_APPLICATION_CREDENTIALS": str(path), "GOOGLE_CLOUD_PROJECT": "p"}
        with pytest.raises(ModelError, match="Google Cloud"):
            await ask(to.model("vertexai", api_key="", env=variables))


async def test_waiting_for_a_token_can_be_cancelled_and_is_taken_up_again(tmp_path: Path) -> None:
    async with client() as to:
        tokens = with_tokens(3600)
        mute = [Reply(fault="mute")]

        def choose(request: Recorded) -> Reply:
            return mute.pop() if mute and request.path == "/token" else tokens(request)

        to.server.choose = choose
        variables = {"GOOGLE_APPLICATION_CREDENTIALS": str(service_account(tmp_path, to.root))}
        model = to.model("vertexai", api_key="", env=variables)
        with anyio.move_on_after(0.3) as scope:
            await ask(model)
        assert scope.cancelled_caught
        assert to.server.asked.is_set()
        with anyio.fail_after(5):
            await ask(model)
