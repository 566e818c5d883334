"""A second model for titles and for subagents, and levels of thinking, in the real process."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.support.program.wire_process import Json, Place, eventually
from tests.support.providers.scripts import call


def second_model(place: Place, keys: str, *answers: str) -> None:
    """Configure the model `small`, which gives these answers, and use it by these keys."""
    (place.root / "small.json").write_text(json.dumps(answers), encoding="utf-8")
    path = place.share / "config.toml"
    rest = path.read_text(encoding="utf-8")
    path.write_text(
        f"{keys}\n{rest}\n[providers.small]\ntype = '_scripted_echo'\nbase_url = ''\napi_key = ''\n"
        f"env = {{KIMI_SCRIPTED_ECHO_SCRIPTS = {json.dumps(str(place.root / 'small.json'))}}}\n"
        "[models.small]\nprovider = 'small'\nmodel = 'x'\nmax_context_size = 1000\n",
        encoding="utf-8",
    )


def title(place: Place) -> str:
    found: Json = json.loads((place.session_dirs()[0] / "state.json").read_text(encoding="utf-8"))
    return found["custom_title"]


@pytest.mark.spec("R-325")
def test_the_model_for_titles_names_the_session(tmp_path: Path) -> None:
    place = Place(tmp_path).script("text: ok", "text: ok")
    second_model(place, "title_model = 'small'", "text: Parser mended")
    with place.wire() as kimi:
        kimi.initialize()
        assert kimi.prompt("please mend the parser")["result"] == {"status": "finished"}
        assert eventually(lambda: title(place) == "Parser mended")
        assert kimi.prompt("and now the tests")["result"] == {"status": "finished"}
        assert kimi.finish() == 0
    assert title(place) == "Parser mended"


@pytest.mark.spec("R-324")
def test_subagents_use_the_model_for_subagents(tmp_path: Path) -> None:
    report = "Everything is in order. " * 20
    place = Place(tmp_path).script(call("p1", "Agent", {"description": "look", "prompt": "look"}), "text: done")
    second_model(place, "subagent_model = 'small'", f"text: {report}")
    with place.wire() as kimi:
        kimi.initialize()
        assert kimi.prompt("go")["result"] == {"status": "finished"}
        assert "status: completed" in kimi.payloads("ToolResult")[0]["return_value"]["output"]
        assert kimi.finish() == 0


@pytest.mark.spec("R-324", "R-325")
@pytest.mark.parametrize("key", ["subagent_model", "title_model"])
def test_a_second_model_that_is_not_configured_is_an_error_at_the_start(tmp_path: Path, key: str) -> None:
    place = Place(tmp_path).script("text: ok")
    path = place.share / "config.toml"
    path.write_text(f"{key} = 'none'\n" + path.read_text(encoding="utf-8"), encoding="utf-8")
    done = place.run("--print", "-p", "hi")
    assert done.returncode == 1
    assert f"{key}: Model none not found in models" in (done.stdout + done.stderr).decode()


@pytest.mark.spec("R-320")
def test_an_effort_that_cannot_be_sent_ends_the_start_with_a_sentence(tmp_path: Path) -> None:
    place = Place(tmp_path)
    place.write_config("kimi", base_url="http://127.0.0.1:1/v1")
    path = place.share / "config.toml"
    text = path.read_text(encoding="utf-8")
    path.write_text(text.replace("[models.m]\n", "[models.m]\nthinking_effort = 'low'\n"), encoding="utf-8")
    assert "thinking_effort" in path.read_text(encoding="utf-8")
    done = place.run("--print", "-p", "hi")
    assert done.returncode == 1
    told = (done.stdout + done.stderr).decode()
    assert "models.m.thinking_effort: providers of the type kimi have no levels of thinking" in told
    assert "Traceback" not in told
