"""`kimi setup --catalogue`: data of models from a file the user names, written into the configuration."""

from __future__ import annotations

import json
import tomllib
from pathlib import Path

import pytest

from tests.support.program.wire_process import Json, Place

pytestmark = pytest.mark.spec("R-322")


@pytest.fixture
def place(tmp_path: Path) -> Place:
    """A place with a model that the catalogue knows, and one that it does not."""
    place = Place(tmp_path)
    place.config = '\n[models.far]\nprovider = "p"\nmodel = "far-1"   # mine\nmax_context_size = 7\n'
    return place.script("text: ok\nusage: input_other=1000000 output=1000000")


def config(place: Place) -> Json:
    return tomllib.loads((place.share / "config.toml").read_text(encoding="utf-8"))


def catalogue(place: Place, content: object) -> str:
    path = place.root / "models.json"
    path.write_text(content if isinstance(content, str) else json.dumps(content), encoding="utf-8")
    return str(path)


def test_catalogue_changes_the_configured_models_and_costs_are_known_then(place: Place) -> None:
    model = config(place)["models"]["m"]["model"]
    entry = {"context_size": 123_456, "capabilities": ["image_in"], "prices": {"input": 0.5, "output": 2}}
    path = catalogue(place, {"models": {model: entry, "unused": {}}})
    done = place.run("setup", "--catalogue", path)
    assert done.returncode == 0, done.stderr
    assert done.stdout.decode().splitlines() == [
        "m: context size 123456; capabilities image_in; prices 0.5 in and 2 out (USD for a million tokens).",
        "far: the catalogue does not know this model.",
        f"Written to {place.share / 'config.toml'}.",
    ]
    changed = config(place)["models"]
    assert changed["m"]["max_context_size"] == 123_456
    assert changed["m"]["prices"] == {"input": 0.5, "output": 2.0, "currency": "USD"}
    assert changed["far"] == {"provider": "p", "model": "far-1", "max_context_size": 7}
    assert "# mine" in (place.share / "config.toml").read_text(encoding="utf-8")
    again = place.run("setup", "--catalogue", path).stdout.decode().splitlines()
    assert again == ["m: nothing new.", "far: the catalogue does not know this model.", "Nothing was changed."]
    with place.wire() as kimi:
        kimi.initialize(client={"name": "t"}, capabilities={"supports_usage": True})
        kimi.prompt("go")
        assert kimi.payloads("StatusUpdate")[0]["usage"]["turn"]["cost"] == {"amount": 2.5, "currency": "USD"}
        assert kimi.finish() == 0


@pytest.mark.parametrize(
    ("content", "why"),
    [
        ("{", "is not JSON."),
        ("[" * 100_000, "is not JSON."),
        ([], "is no catalogue of models"),
        ({"models": {}}, "is no catalogue of models"),
    ],
)
def test_a_file_that_is_no_catalogue_changes_nothing(place: Place, content: object, why: str) -> None:
    before = (place.share / "config.toml").read_bytes()
    done = place.run("setup", "--catalogue", catalogue(place, content))
    assert done.returncode == 1
    assert why in done.stderr.decode()
    assert b"Traceback" not in done.stderr
    assert (place.share / "config.toml").read_bytes() == before


def test_without_a_model_the_catalogue_names_the_command_that_helps(tmp_path: Path) -> None:
    place = Place(tmp_path)
    (place.share / "config.toml").unlink(missing_ok=True)
    done = place.run("setup", "--catalogue", catalogue(place, {"models": {"x": {}}}))
    assert done.returncode == 1
    assert "No models are configured yet: run 'kimi setup' first." in done.stderr.decode()


def test_a_new_model_is_set_up_with_the_data_of_the_catalogue(place: Place) -> None:
    listed: Json = {"limit": {"context": 99_000}, "reasoning": True, "cost": {"input": 1, "output": 2}}
    local: Json = {"api": "http://127.0.0.1:11434/v1", "models": {"qwen": listed}}
    path = catalogue(place, {"local": local})
    done = place.run("setup", "--provider", "ollama", "--model", "qwen", "--catalogue", path)
    assert done.returncode == 0, done.stderr
    found = config(place)["models"]["qwen"]
    assert (found["max_context_size"], found["capabilities"]) == (99_000, ["thinking"])
    assert found["prices"] == {"input": 1.0, "output": 2.0, "currency": "USD"}
