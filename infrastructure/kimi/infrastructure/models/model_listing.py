"""The models that a server with OpenAI's API offers. Setup proposes them to the user."""

from __future__ import annotations

from typing import cast

from pydantic_core import from_json

from kimi.infrastructure.http.client import HttpClient, HttpError
from kimi.infrastructure.http.headers import to_printable_ascii
from kimi.infrastructure.http.json_limits import find_json_excess
from kimi.infrastructure.models.json_object import as_object

_MAX_BYTES = 4 << 20
"""The limit of the response: some providers describe hundreds of models at length."""


async def list_model_ids(base_url: str, api_key: str, http: HttpClient) -> list[str]:
    """Return the ids that `GET {base_url}/models` lists, in the server's order.

    Raises:
        HttpError: the connection failed, the status is an error, or the response is too long.
        ConfigError: the address, the certificates or the proxy of the environment cannot be used.
        ValueError: the response does not have the expected form.
    """
    key = to_printable_ascii(api_key)
    headers = [("Accept", "application/json"), *([("Authorization", f"Bearer {key}")] if key else [])]
    async with http.request("GET", f"{base_url.rstrip('/')}/models", headers) as response:
        if response.status != 200:
            raise HttpError(f"HTTP {response.status}")
        body = await response.read(_MAX_BYTES + 1)
    if len(body) > _MAX_BYTES or find_json_excess(body) is not None:
        raise HttpError("the list of models is too long")
    return _parse_model_ids(from_json(body))


def _parse_model_ids(answer: object) -> list[str]:
    data = (as_object(answer) or {}).get("data")
    if not isinstance(data, list):
        raise ValueError("the list of models is missing")
    ids = ((as_object(entry) or {}).get("id") for entry in cast(list[object], data))
    return [model_id for model_id in ids if isinstance(model_id, str)]
