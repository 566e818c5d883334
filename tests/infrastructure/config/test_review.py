"""What a review of a foreign configuration takes out, leaves for the user, and names as without effect."""

from __future__ import annotations

import json
import tomllib
from pathlib import Path

import pytest

from kimi.infrastructure.config.review import ReviewedConfiguration
from kimi.infrastructure.config.schema import validate_configuration

PROVIDER = '[providers.p]\ntype = "kimi"\nbase_url = "u"\napi_key = "sk-planted-secret"\n'
MODEL = '[models.m]\nprovider = "p"\nmodel = "m"\nmax_context_size = 9\n'


def reviewed(share: Path, text: str, name: str = "config.toml") -> ReviewedConfiguration:
    (share / name).write_text(text)
    return ReviewedConfiguration(str(share))


@pytest.mark.spec("R-270")
@pytest.mark.parametrize(
    ("text", "refused", "left"),
    [
        ('theme = "pink"\n', ["theme"], {}),
        ("services = 3\n", ["services"], {}),
        ('hooks = "x"\n', ["hooks"], {}),
        ("[services.moonshot_fetch]\nbase_url = 'u'\n", ["services.moonshot_fetch"], {"services": {}}),
        ("[loop_control]\nmax_steps_per_turn = 0\n", ["loop_control.max_steps_per_turn"], {"loop_control": {}}),
        ("[[hooks]]\n[[hooks]]\nevent = 'Stop'\ncommand = 'x'\n[[hooks]]\nevent = 'New'\ncommand = 'x'\n",
         ["hooks.0", "hooks.2"], {"hooks": [{"event": "Stop", "command": "x"}]}),
    ],
)  # fmt: skip
def test_what_is_refused_is_taken_out_and_the_rest_can_be_used(
    tmp_path: Path, text: str, refused: list[str], left: dict[str, object]
) -> None:
    found = reviewed(tmp_path, f"# mine\n{text}")
    assert sorted({entry.partition(" (")[0] for entry in found.review.refused}) == refused
    assert found.usable == left
    found.mend()
    written = (tmp_path / "config.toml").read_text()
    assert written.startswith("# mine\n")
    assert validate_configuration(tomllib.loads(written)) == validate_configuration(left)


@pytest.mark.spec("R-270")
def test_a_capability_that_is_not_known_costs_the_capability_only(tmp_path: Path) -> None:
    text = f'{PROVIDER}{MODEL}capabilities = ["thinking", "smell"]\n'
    found = reviewed(tmp_path, text)
    found.mend()
    models = tomllib.loads((tmp_path / "config.toml").read_text())["models"]
    assert models["m"]["capabilities"] == ["thinking"]


@pytest.mark.spec("R-270")
@pytest.mark.parametrize(
    "text",
    [
        "providers = 3\n",
        MODEL,
        PROVIDER + MODEL.replace("9", "-1"),
        "[sandbox]\nmode = 'other'\n",
        "[files]\nsensitive = 3\n",
    ],
)
def test_what_the_user_must_correct_is_never_taken_out(tmp_path: Path, text: str) -> None:
    found = reviewed(tmp_path, text)
    assert found.review.problem.startswith("Invalid configuration file ")
    assert found.review.refused == ()
    assert "sk-planted-secret" not in found.review.problem
    assert found.list_providers({}) == ()
    found.mend()
    assert (tmp_path / "config.toml").read_text() == text


@pytest.mark.spec("R-270")
def test_keys_without_effect_are_named_at_every_level_and_aliases_are_not(tmp_path: Path) -> None:
    text = (
        "new = 1\n[loop_control]\nmax_steps_per_run = 5\nfuture = 1\n[mcp.client]\nother = 1\n[[hooks]]\n"
        f'event = "Stop"\ncommand = "x"\nlabel = "y"\n{PROVIDER}color = "red"\n{MODEL}display_name = "M"\n'
    )
    assert reviewed(tmp_path, text).review.without_effect == (
        *("new", "loop_control.future", "mcp.client.other", "hooks.0.label"),
        *("providers.p.color", "models.m.display_name"),
    )


@pytest.mark.spec("R-270")
def test_json_stays_json(tmp_path: Path) -> None:
    found = reviewed(tmp_path, json.dumps({"theme": "pink", "own": {"ü": 1}}), "config.json")
    assert found.review.is_legacy
    found.mend()
    assert json.loads((tmp_path / "config.json").read_text()) == {"own": {"ü": 1}}


def test_no_file_is_no_problem(tmp_path: Path) -> None:
    found = ReviewedConfiguration(str(tmp_path))
    assert (found.review.path, found.review.problem, found.usable) == ("", "", {})
    found.mend()
    assert list(tmp_path.iterdir()) == []
