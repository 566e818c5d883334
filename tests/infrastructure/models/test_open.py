"""Opening a model: every type of the configuration has an adapter, and none is dear before it is used."""

from __future__ import annotations

import subprocess
import sys
from typing import get_args

import pytest

from kimi.infrastructure.config.schema import ProviderConfig
from kimi.infrastructure.models.open import ADAPTERS
from tests.support.dialects.table import ROWS

OPEN = """
import sys
from kimi.application.settings.settings import ModelSettings
from kimi.infrastructure.http.client import HttpClient
from kimi.infrastructure.models.open import open_model
before = set(sys.modules)
settings = ModelSettings(provider_name="p", type={kind!r}, model="m", base_url="http://127.0.0.1:1", api_key="k")
open_model(settings, "s", HttpClient({{}}), lambda: "", {{}})
loaded = {{name.partition(".")[0] for name in set(sys.modules) - before}}
dear = {{"aiohttp", "google", "openai", "anthropic", "httpx", "asyncio", "email", "http"}}
assert not loaded & dear, loaded & dear
others = {{name for name in sys.modules if name.startswith("kimi.infrastructure.models.")}}
assert len(others) <= 20, sorted(others)
"""


@pytest.mark.parametrize("kind", [row.type for row in ROWS])
def test_opening_a_model_loads_no_library_and_no_other_adapter(kind: str) -> None:
    code = OPEN.format(kind=kind)
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def test_every_type_of_the_configuration_can_be_opened() -> None:
    types = set(get_args(ProviderConfig.model_fields["type"].annotation))
    assert "anthropic" in types
    assert types - {"_chaos"} <= set(ADAPTERS)
