"""Access tokens of Google Cloud, for `vertexai` without an API key (runtime spec 3.6).

google-auth (the extra `vertex`) is imported in a worker thread with the first request. Its own requests go through our
HTTP client, so that they use the same proxies and certificates as all others.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from importlib import import_module
from importlib.util import find_spec
from typing import Any

import anyio
import anyio.from_thread
import anyio.to_thread

from kimi.domain.errors import APIConnectionError, ChatProviderError, ConfigError
from kimi.infrastructure.http.client import HttpClient, HttpError
from kimi.infrastructure.models.answer_errors import SHAPE_ERRORS
from kimi.infrastructure.models.json_object import as_object

SCOPE = "https://www.googleapis.com/auth/cloud-platform"
CREDENTIALS_VARIABLE = "GOOGLE_APPLICATION_CREDENTIALS"

_LOADERS = {
    "service_account": ("google.oauth2.service_account", "from_service_account_info"),
    "authorized_user": ("google.oauth2.credentials", "from_authorized_user_info"),
    "external_account": ("google.auth.identity_pool", "from_info"),
}
"""The types of credential files, with the module of their class and its constructor."""

_MAX_ANSWER = 1 << 20
_MAX_REASON = 300


def check_google_auth() -> None:
    """Check that google-auth is installed.

    Raises:
        ConfigError: it is not installed.
    """
    if find_spec("google") is None or find_spec("google.auth") is None:
        raise ConfigError(
            "A provider of the type 'vertexai' without an api_key needs the extra 'vertex': install kimi-wire[vertex], "
            "or set an api_key (Vertex AI in express mode)."
        )


class GoogleCloudTokens:
    """The access tokens of one set of credentials.

    The credentials are those in the file that the variable names, else the application default credentials of this
    machine. A token is fetched when there is none or the last one is about to expire.
    """

    def __init__(self, http: HttpClient, environ: Mapping[str, str]) -> None:
        self._request = GoogleAuthTransport(http)
        self._file = environ.get(CREDENTIALS_VARIABLE) or ""
        self._credentials: list[Any] = []
        """Contains the credentials once they are loaded."""
        self._project = ""
        self._lock = anyio.Lock()

    async def get_token(self) -> str:
        """Return a token that is valid for some minutes at least.

        Raises:
            ChatProviderError: there are no credentials, or they are refused.
            APIConnectionError: the token service cannot be reached.
        """
        async with self._lock:  # several requests at once must wait for one token instead of fetching one each
            if not self._credentials or not self._credentials[0].valid:
                await anyio.to_thread.run_sync(self._refresh, abandon_on_cancel=True)
            return str(self._credentials[0].token)

    async def get_project(self) -> str:
        """Return the project that the credentials belong to; empty if they name none.

        Raises:
            ChatProviderError, APIConnectionError: as `get_token`.
        """
        await self.get_token()
        return self._project

    def _refresh(self) -> None:
        """Load the credentials if necessary and fetch a token. Blocks: it must run in a worker thread."""
        errors: Any = import_module("google.auth.exceptions")
        try:
            if not self._credentials:
                self._load()
            self._credentials[0].refresh(self._request)
        except errors.TransportError as error:
            raise APIConnectionError(f"No access token for Google Cloud: {_format_reason(error)}.") from error
        except errors.GoogleAuthError as error:
            raise ChatProviderError(f"No access token for Google Cloud: {_format_reason(error)}.") from error
        except ConfigError as error:
            raise ChatProviderError(str(error)) from error
        except (OSError, *SHAPE_ERRORS) as error:
            raise ChatProviderError(
                f"The credentials for Google Cloud cannot be read: {_format_reason(error)}."
            ) from error

    def _load(self) -> None:
        if self._file:
            credentials, project = _load_credentials_file(os.path.expanduser(self._file))
        else:
            auth: Any = import_module("google.auth")
            credentials, project = auth.default(scopes=[SCOPE], request=self._request)
        self._credentials, self._project = [credentials], project or ""


class GoogleAuthTransport:
    """A google-auth transport that sends requests through our HTTP client, called in a worker thread of anyio."""

    def __init__(self, http: HttpClient) -> None:
        self._http = http

    def __call__(
        self,
        url: str,
        method: str = "GET",
        body: bytes | str | None = None,
        headers: Mapping[str, str] | None = None,
        timeout: float | None = None,
        **more: object,
    ) -> GoogleAuthResponse:
        """Send one request; `timeout` is in seconds. Raises google-auth's TransportError when no response arrives."""
        return anyio.from_thread.run(self._send, method, url, dict(headers or {}), _to_bytes(body), timeout)

    async def _send(
        self, method: str, url: str, headers: dict[str, str], body: bytes, timeout: float | None
    ) -> GoogleAuthResponse:
        errors: Any = import_module("google.auth.exceptions")
        try:
            with anyio.fail_after(timeout):
                async with self._http.request(method, url, list(headers.items()), [body] if body else []) as response:
                    return GoogleAuthResponse(response.status, response.headers, await response.read(_MAX_ANSWER))
        except HttpError as error:
            raise errors.TransportError(str(error)) from error
        except TimeoutError as error:
            raise errors.TransportError(f"no answer within {timeout:g} seconds") from error


def _load_credentials_file(path: str) -> tuple[Any, str | None]:
    """Return the credentials in a file and their project.

    Only the types of `_LOADERS` are accepted: a file must not be able to select another class of google-auth.
    """
    with open(path, encoding="utf-8") as file:
        info = as_object(json.load(file)) or {}
    loader = _LOADERS.get(str(info.get("type")))
    if loader is None:
        raise ValueError(f"{path} holds none of the known kinds ({', '.join(_LOADERS)})")
    module, method = loader
    load: Any = getattr(import_module(module).Credentials, method)
    return load(info, scopes=[SCOPE]), info.get("project_id")


class GoogleAuthResponse:
    """A response in the form that google-auth expects."""

    def __init__(self, status: int, headers: Mapping[str, str], data: bytes) -> None:
        self.status = status
        self.headers = headers
        self.data = data


def _to_bytes(body: bytes | str | None) -> bytes:
    return body.encode() if isinstance(body, str) else body or b""


def _format_reason(error: Exception) -> str:
    """Return the reason in one short line. The arguments of some errors are (text, details)."""
    if isinstance(error, OSError) and error.filename:
        return f"{error.strerror}: {error.filename}"
    text = str(error.args[0]) if error.args else str(error)
    return text.strip().splitlines()[0].rstrip(" :.")[:_MAX_REASON] if text.strip() else type(error).__name__
