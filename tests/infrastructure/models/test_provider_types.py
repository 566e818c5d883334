"""The table of provider types: what reads it agrees, and no adapter is loaded before it is used."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

from kimi.application.settings.settings import ModelSettings
from kimi.infrastructure.config.schema import validate_configuration
from kimi.infrastructure.http.client import HttpClient
from kimi.infrastructure.models.provider_types import PROVIDER_TYPES, import_adapter, list_provider_presets
from tests.support.dialects.table import ROWS

DOCS = Path(__file__).resolve().parents[3] / "docs"

OPEN = """
import sys
from kimi.application.settings.settings import ModelSettings
from kimi.infrastructure.http.client import HttpClient
from kimi.infrastructure.models.provider_types import open_model
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


def test_the_table_itself_loads_no_adapter() -> None:
    code = """
import sys
import kimi.application.settings.settings
before = set(sys.modules)
import kimi.infrastructure.models.provider_types
ours = {name for name in set(sys.modules) - before if name.startswith("kimi.")}
assert ours == {
    "kimi.infrastructure", "kimi.infrastructure.models", "kimi.infrastructure.models.provider_types",
    "kimi.domain.errors",
} , ours
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def test_every_type_but_one_can_be_opened_and_is_tested_over_http() -> None:
    assert [row.name for row in PROVIDER_TYPES.values() if row.open is None] == ["_chaos"]
    assert {name for name in PROVIDER_TYPES if not name.startswith("_")} == {row.type for row in ROWS}


def test_unknown_type_is_refused_with_all_that_are_known() -> None:
    for given in ("other", 5, None):
        with pytest.raises(ValueError, match=r"must be 'kimi', .*, '_chaos' or '_replay'$"):
            validate_configuration({"providers": {"p": {"type": given, "base_url": "", "api_key": ""}}})


def test_every_type_for_users_has_a_preset_of_its_own_name() -> None:
    presets = list_provider_presets()
    assert {name for name in PROVIDER_TYPES if not name.startswith("_")} <= {preset.name for preset in presets}
    assert all(preset.type == row.name for row in PROVIDER_TYPES.values() for preset in row.presets)
    ranks = [row.setup_rank for row in PROVIDER_TYPES.values() if row.presets]
    assert sorted(ranks) == list(range(1, len(ranks) + 1))


def test_the_documentation_names_every_type_for_users() -> None:
    rows = [row for row in PROVIDER_TYPES.values() if not row.name.startswith("_")]
    names = [(row.name, *row.aliases) for row in rows]
    table = re.findall(r"^\| (`.+?) \|", (DOCS / "providers.md").read_text(encoding="utf-8"), re.MULTILINE)
    assert [tuple(re.findall(r"`(\w+)`", cell)) for cell in table[: len(rows)]] == names
    (line,) = re.findall(r"^\| `type` \| (.+?); for tests", (DOCS / "configuration.md").read_text(), re.MULTILINE)
    assert re.findall(r"`(\w+)`", line) == [name for one in names for name in one]


DEFERRED = """
import sys
from kimi.application.settings.settings import ModelSettings
from kimi.infrastructure.http.client import HttpClient
from kimi.infrastructure.models.provider_types import import_adapter, open_model

def adapters():
    beside = {{"kimi.infrastructure.models." + name for name in ("provider_types", "deferred")}}
    return {{name for name in sys.modules if name.startswith("kimi.infrastructure.models.")}} - beside

http = HttpClient({{}})
settings = ModelSettings(provider_name="p", type={kind!r}, model="m", base_url="http://127.0.0.1:1", max_context_size=9)
model = open_model(settings, "s", http, lambda: "", {{}})
assert (model.name, model.context_size, model.capabilities) == ("m", 9, settings.capabilities)
assert adapters() == set(), adapters()
import_adapter(settings, http)
imported = set(sys.modules)
model.stream("", [], [], 0)
assert adapters()
assert set(sys.modules) == imported, set(sys.modules) - imported
"""


@pytest.mark.parametrize("kind", [row.name for row in PROVIDER_TYPES.values() if row.is_deferrable])
def test_adapter_is_imported_ahead_or_with_the_first_request(kind: str) -> None:
    code = DEFERRED.format(kind=kind)
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def test_nothing_is_imported_ahead_without_a_usable_model() -> None:
    import_adapter(None, HttpClient({}))
    import_adapter(ModelSettings(provider_name="p", type="kimi", model=""), HttpClient({}))
