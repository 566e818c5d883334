"""`kimi setup` with questions and without, on real files and a person made of lines."""

from __future__ import annotations

import logging
import tomllib
from collections.abc import Generator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from kimi.application.settings.flags import Flags
from kimi.infrastructure.config.settings_files import load_settings
from kimi.infrastructure.models.open import ADAPTERS
from kimi.interfaces.admin.provider_presets import PRESETS, RUN_TIME_KEYS
from kimi.interfaces.admin.setup import Wanted, run_setup
from kimi.interfaces.process.process import DailyLog
from tests.support.providers.loopback import loopback
from tests.support.providers.provider_server import Reply, dumps, error_reply, text_reply


@dataclass
class Person:
    """Gives these answers one after the other; keeps what was asked and shown."""

    answers: list[str] = field(default_factory=list[str])
    asked: list[str] = field(default_factory=list[str])
    shown: list[str] = field(default_factory=list[str])

    def say(self, text: str) -> None:
        self.shown.append(text)

    def ask(self, question: str, default: str = "") -> str:
        self.asked.append(f"{question} [{default}]")
        if not self.answers:
            raise EOFError
        return self.answers.pop(0) or default

    def ask_secret(self, question: str) -> str:
        return self.ask(question)


@dataclass
class Home:
    """A share directory and the variables of a process; nothing leaves this machine."""

    share: Path
    variables: dict[str, str] = field(default_factory=dict[str, str])

    @property
    def environ(self) -> Mapping[str, str]:
        nowhere = dict.fromkeys(("HTTP_PROXY", "HTTPS_PROXY"), "http://127.0.0.1:1")
        return {"KIMI_SHARE_DIR": str(self.share), "HOME": str(self.share), **nowhere, **self.variables}

    @property
    def config(self) -> dict[str, Any]:
        return tomllib.loads((self.share / "config.toml").read_text())

    def setup(self, wanted: Wanted | None = None, *answers: str) -> tuple[int, Person]:
        person = Person(list(answers))
        return run_setup(wanted, environ=self.environ, dialogue=person), person


@pytest.fixture
def home(tmp_path: Path) -> Generator[Home, None, None]:
    root = logging.getLogger()
    before = root.level, list(root.handlers)
    yield Home(tmp_path / "share")
    for handler in [handler for handler in root.handlers if isinstance(handler, DailyLog)]:
        handler.close()
    root.setLevel(before[0])
    root.handlers[:] = before[1]


def number(name: str) -> str:
    """What to answer for a preset."""
    return str(1 + [preset.name for preset in PRESETS].index(name))


def test_every_preset_makes_a_model_that_can_be_asked(home: Home) -> None:
    for preset in PRESETS:
        home.variables = {"SOME_KEY": "sk-1234567890"}
        model = preset.model or "some/model:7b"
        url = preset.base_url or "http://127.0.0.1:9/v1"
        key = "SOME_KEY" if preset.needs_key else None
        assert home.setup(Wanted(preset.name, base_url=url, model=model, api_key_env=key))[0] == 0
        settings = load_settings(Flags(str(home.share)), home.environ)
        assert settings.model is not None
        assert settings.model.usable
        assert (settings.model.provider_name, settings.model.type) == (preset.name, preset.type)
        assert settings.model.api_key == ("sk-1234567890" if key else "" if preset.variables else "none")
        assert settings.model.type in {*ADAPTERS, "openai_responses"}
    assert len(home.config["models"]) == len(PRESETS)

    types = {"kimi", "openai_legacy", "openai_responses", "anthropic", "gemini", "vertexai"}
    assert types <= {preset.name for preset in PRESETS}
    assert types == {preset.type for preset in PRESETS}


def test_questions_and_their_answers(home: Home) -> None:
    code, person = home.setup(
        None, "0", "x", number("ollama"), "localhost:11434", "http://localhost:11434/v1", "", 'a"b', "qwen3:8b",
        "lots", "64k", "sings", "image_in, thinking",
    )  # fmt: skip
    assert code == 0
    assert home.config["default_model"] == "qwen3:8b"
    assert home.config["providers"]["ollama"] == {
        "type": "openai_legacy", "base_url": "http://localhost:11434/v1", "api_key": "none",
    }  # fmt: skip
    assert home.config["models"]["qwen3:8b"] == {
        "provider": "ollama", "model": "qwen3:8b", "max_context_size": 65536, "capabilities": ["image_in", "thinking"],
    }  # fmt: skip
    assert person.shown[1:3] == ["  1  Kimi (Moonshot AI)", "  2  Kimi in China"]
    complaints = [line for line in person.shown if line.startswith(("Please", "The ", "There "))]
    assert len(complaints) == 6
    assert person.shown[-2:] == [
        f"Written to {home.share / 'config.toml'}: provider 'ollama', default model 'qwen3:8b'.",
        "Check it with 'kimi doctor'.",
    ]


def test_the_server_is_asked_for_its_models_and_for_a_word(home: Home) -> None:
    names = [{"id": f"m{number}"} for number in range(31)]
    listing = Reply(body=dumps({"object": "list", "data": [*names, {}, 7]}))
    with loopback(listing, text_reply("ok")) as server:
        home.variables = {"NO_PROXY": "127.0.0.1"}
        code, person = home.setup(None, number("vllm"), server.base_url, "sk-local", "m7", "", "", "")
        models, question = server.requests
    assert code == 0
    assert (models.method, models.path, models.headers["authorization"]) == ("GET", "/v1/models", "Bearer sk-local")
    assert f"It offers: {', '.join(f'm{number}' for number in range(30))}, and 1 more" in person.shown
    assert question.json["model"] == "m7"
    assert person.shown[-1] == f"{server.base_url[7:-3]} answers."


@pytest.mark.parametrize("body", [b"<html>", b"[]", b'{"data": 7}', b'{"data": []}'])
def test_a_server_that_lists_nothing_is_set_up_all_the_same(home: Home, body: bytes) -> None:
    with loopback(Reply(body=body), error_reply(401, "bad sk-local")) as server:
        home.variables = {"NO_PROXY": "127.0.0.1"}
        code, person = home.setup(None, number("vllm"), server.base_url, "sk-local", "m", "", "", "yes")
    assert code == 0
    assert not any(line.startswith("It offers") for line in person.shown)
    assert "HTTP 401: bad *** Enter another key with 'kimi setup'" in person.shown[-1]


def test_nobody_is_asked_who_does_not_want_it(home: Home) -> None:
    with loopback(error_reply(404)) as server:
        home.variables = {"NO_PROXY": "127.0.0.1"}
        code, person = home.setup(None, number("vllm"), server.base_url, "", "m", "", "", "n")
        assert [request.path for request in server.requests] == ["/v1/models"]
    assert code == 0
    assert person.shown[-1] == "Check it with 'kimi doctor'."


def test_empty_answers_take_what_is_proposed(home: Home) -> None:
    assert home.setup(None, "", "", "sk-typed", "", "", "")[0] == 0
    assert home.config["default_model"] == "kimi-k2-thinking"
    assert home.config["providers"]["kimi"]["api_key"] == "sk-typed"
    code, person = home.setup(None, number("kimi"), "", "", "kimi-latest", "", "none")
    assert code == 0
    assert "empty to keep the stored one" in person.asked[2]
    assert home.config["providers"]["kimi"]["api_key"] == "sk-typed"
    assert set(home.config["models"]) == {"kimi-k2-thinking", "kimi-latest"}


def test_what_the_options_say_is_not_asked_or_is_proposed(home: Home) -> None:
    home.variables = {"MY_KEY": "sk-mine"}
    code, person = home.setup(
        Wanted(api_key_env="MY_KEY", model="qwen3", context_size=4096, capabilities=("image_in",)),
        number("ollama"), "", "", "", "", "n",
    )  # fmt: skip
    assert code == 0
    assert not any("key" in question.lower() for question in person.asked)
    assert home.config["providers"]["ollama"]["api_key"] == "sk-mine"
    assert home.config["models"]["qwen3"] == {
        "provider": "ollama", "model": "qwen3", "max_context_size": 4096, "capabilities": ["image_in"],
    }  # fmt: skip
    assert home.setup(Wanted(api_key_env="NOT_SET"), number("ollama"), "")[0] == 1


def test_a_key_is_typed_again_when_it_cannot_be_one(home: Home) -> None:
    code, person = home.setup(None, number("anthropic"), "", "two words", "clé", "sk-ant", "claude", "", "")
    assert code == 0
    assert person.shown.count("A key is one word of printable characters.") == 2
    assert home.config["providers"]["anthropic"]["api_key"] == "sk-ant"


def test_a_person_who_leaves_changes_nothing(home: Home, capfd: pytest.CaptureFixture[str]) -> None:
    home.setup(Wanted("ollama", model="m"))
    before = (home.share / "config.toml").read_bytes()
    assert home.setup(None, number("kimi"), "")[0] == 1
    assert (home.share / "config.toml").read_bytes() == before
    assert capfd.readouterr().err == "\nNothing was changed.\n"


# --- without questions -----------------------------------------------------------------------------------------


def test_a_variable_that_is_read_at_each_start_is_not_copied(home: Home) -> None:
    for type_, variable in RUN_TIME_KEYS.items():
        home.variables = {}
        wanted = Wanted(type_, "https://x/v1", variable, "m")
        assert home.setup(wanted)[0] == 0
        assert home.config["providers"][type_]["api_key"] == ""
        home.variables = {variable: "sk-from-the-environment"}
        model = load_settings(Flags(str(home.share)), home.environ).model
        assert model is not None
        assert model.api_key == "sk-from-the-environment"


def test_other_variables_are_read_now(home: Home) -> None:
    home.variables = {"MINE": " sk-mine\n"}
    assert home.setup(Wanted("openrouter", api_key_env="MINE", model="a/b"))[0] == 0
    assert home.config["providers"]["openrouter"]["api_key"] == "sk-mine"
    home.variables = {"OPENAI_API_KEY": "sk-other"}
    assert home.setup(Wanted("openrouter", model="a/c", capabilities=("none",)))[0] == 0
    assert home.config["providers"]["openrouter"]["api_key"] == "sk-mine"
    home.variables |= {"MINE": "sk-new"}
    _, person = home.setup(Wanted("openrouter", api_key_env="MINE", model="a/c"))
    assert "The variable OPENAI_API_KEY is set: its key is used instead of the one in the file." in person.shown


def test_vertex_needs_a_project_and_no_key(home: Home) -> None:
    assert home.setup(None, number("vertexai"), "", "", "my-project", "europe-west1", "gemini-pro", "", "")[0] == 0
    provider = home.config["providers"]["vertexai"]
    assert provider["env"] == {"GOOGLE_CLOUD_PROJECT": "my-project", "GOOGLE_CLOUD_LOCATION": "europe-west1"}
    assert provider["api_key"] == ""


def test_a_name_that_is_taken_gets_its_provider(home: Home) -> None:
    assert home.setup(Wanted("ollama", model="m", context_size=5))[0] == 0
    assert home.setup(Wanted("vllm", model="m"))[0] == 0
    assert home.config["default_model"] == "vllm/m"
    assert home.config["models"]["m"]["provider"] == "ollama"


@pytest.mark.parametrize(
    ("wanted", "report"),
    [
        (Wanted("nobody"), "There is no provider 'nobody' to set up; choose one of: kimi, kimi-cn, "),
        (Wanted("ollama"), "The provider 'ollama' needs --model"),
        (Wanted("openai_legacy", model="m"), "The provider 'openai_legacy' needs --base-url."),
        (Wanted("ollama", "ftp://x", model="m"), "The base URL must look like https://host/path."),
        (Wanted("ollama", "http://[", model="m"), "The base URL must look like https://host/path."),
        (Wanted("ollama", model="a\nb"), "The id of the model must not be empty"),
        (Wanted("ollama", model="m", capabilities=("sings",)), "There is no capability 'sings'"),
        (Wanted("deepseek"), "The provider 'deepseek' needs a key: name the variable that holds it, --api-key-env."),
        (Wanted("deepseek", api_key_env="NOT_SET"), "The environment variable NOT_SET is not set."),
        (Wanted("deepseek", api_key_env="WORDS"), "The environment variable WORDS holds no key"),
        (Wanted(remove_key=True), "Name the provider with --provider; these have a key: none."),
        (Wanted("nobody", remove_key=True), "Name the provider with --provider; these have a key: none."),
    ],
)
def test_what_cannot_be_written_is_refused(
    home: Home, wanted: Wanted, report: str, capfd: pytest.CaptureFixture[str]
) -> None:
    home.variables = {"WORDS": "sk-two words"}
    code, person = home.setup(wanted)
    error = capfd.readouterr().err
    assert (code, person.asked, person.shown) == (1, [], [])
    assert error.startswith(report)
    assert error.endswith("\nNothing was changed.\n")
    assert "sk-two" not in error
    assert "providers" not in home.config


def test_a_broken_file_is_reported(home: Home, capfd: pytest.CaptureFixture[str]) -> None:
    home.share.mkdir()
    (home.share / "config.toml").write_text("a b")
    assert home.setup(Wanted("ollama", model="m"))[0] == 1
    assert capfd.readouterr().err.startswith(f"Invalid TOML in configuration file {home.share / 'config.toml'}: ")


# --- removing a key --------------------------------------------------------------------------------------------


def test_keys_can_be_removed(home: Home, capfd: pytest.CaptureFixture[str]) -> None:
    home.variables = {"MINE": "sk-1234567890"}
    for name in ("deepseek", "openrouter", "kimi"):
        assert home.setup(Wanted(name, api_key_env="MINE", model="m"))[0] == 0
    assert home.setup(Wanted(remove_key=True))[0] == 1
    assert "these have a key: deepseek, openrouter, kimi" in capfd.readouterr().err
    assert home.setup(Wanted("openrouter", remove_key=True))[0] == 0
    code, person = home.setup(None, str(len(PRESETS) + 1))
    assert code == 0
    assert person.shown[-1] == f"Removed the key of provider 'deepseek' from {home.share / 'config.toml'}."
    assert home.setup(Wanted(remove_key=True))[0] == 0
    assert [provider["api_key"] for provider in home.config["providers"].values()] == ["", "", ""]
    left = [path.read_bytes() for path in home.share.rglob("*") if path.is_file()]
    assert not any(b"sk-1234567890" in content for content in left)
