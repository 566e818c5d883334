"""`kimi setup` with questions and without, on real files and with scripted answers."""

from __future__ import annotations

import logging
import tomllib
from collections.abc import Generator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from kimi.application.admin.setup import SetupOptions
from kimi.application.settings.flags import Flags
from kimi.infrastructure.config.settings_files import load_settings
from kimi.interfaces.admin.provider_presets import API_KEY_VARIABLES, PRESETS
from kimi.interfaces.admin.setup import run_setup
from kimi.interfaces.process.log import DailyLogHandler
from tests.support.providers.loopback import loopback
from tests.support.providers.provider_server import Reply, dumps, error_reply, text_reply


@dataclass
class ScriptedUser:
    """Returns these answers one after the other; keeps what was asked and shown."""

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

    def setup(self, wanted: SetupOptions | None = None, *answers: str) -> tuple[int, ScriptedUser]:
        user = ScriptedUser(list(answers))
        return run_setup(wanted, environ=self.environ, dialogue=user), user


@pytest.fixture
def home(tmp_path: Path) -> Generator[Home, None, None]:
    root = logging.getLogger()
    before = root.level, list(root.handlers)
    yield Home(tmp_path / "share")
    for handler in [handler for handler in root.handlers if isinstance(handler, DailyLogHandler)]:
        handler.close()
    root.setLevel(before[0])
    root.handlers[:] = before[1]


def number(name: str) -> str:
    """Return the answer that chooses a preset."""
    return str(1 + [preset.name for preset in PRESETS].index(name))


def test_every_preset_makes_a_model_that_can_be_asked(home: Home) -> None:
    for preset in PRESETS:
        home.variables = {"SOME_KEY": "sk-1234567890"}
        model = preset.model or "some/model:7b"
        url = preset.base_url or "http://127.0.0.1:9/v1"
        key = "SOME_KEY" if preset.needs_key else None
        assert home.setup(SetupOptions(preset.name, base_url=url, model=model, api_key_env=key))[0] == 0
        settings = load_settings(Flags(str(home.share)), home.environ)
        assert settings.model is not None
        assert settings.model.is_usable
        assert (settings.model.provider_name, settings.model.type) == (preset.name, preset.type)
        assert settings.model.api_key == ("sk-1234567890" if key else "" if preset.variables else "none")
    assert len(home.config["models"]) == len(PRESETS)

    types = {"kimi", "openai_legacy", "openai_responses", "anthropic", "gemini", "vertexai"}
    assert types <= {preset.name for preset in PRESETS}
    assert types == {preset.type for preset in PRESETS}


def test_answers_are_validated_and_written(home: Home) -> None:
    code, user = home.setup(
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
    assert user.shown[1:3] == ["  1  Kimi (Moonshot AI)", "  2  Kimi in China"]
    complaints = [line for line in user.shown if line.startswith(("Please", "The ", "There "))]
    assert len(complaints) == 6
    assert user.shown[-2:] == [
        f"Written to {home.share / 'config.toml'}: provider 'ollama', default model 'qwen3:8b'.",
        "Check it with 'kimi doctor'.",
    ]


def test_setup_lists_server_models_and_tests_the_chosen_one(home: Home) -> None:
    names = [{"id": f"m{number}"} for number in range(31)]
    listing = Reply(body=dumps({"object": "list", "data": [*names, {}, 7]}))
    with loopback(listing, text_reply("ok")) as server:
        home.variables = {"NO_PROXY": "127.0.0.1"}
        code, user = home.setup(None, number("vllm"), server.base_url, "sk-local", "m7", "", "", "")
        models, question = server.requests
    assert code == 0
    assert (models.method, models.path, models.headers["authorization"]) == ("GET", "/v1/models", "Bearer sk-local")
    assert f"It offers: {', '.join(f'm{number}' for number in range(30))}, and 1 more" in user.shown
    assert question.json["model"] == "m7"
    assert user.shown[-1] == f"{server.base_url[7:-3]} answers."


@pytest.mark.parametrize("body", [b"<html>", b"[]", b'{"data": 7}', b'{"data": []}'])
def test_server_without_model_list_is_still_configured(home: Home, body: bytes) -> None:
    with loopback(Reply(body=body), error_reply(401, "bad sk-local")) as server:
        home.variables = {"NO_PROXY": "127.0.0.1"}
        code, user = home.setup(None, number("vllm"), server.base_url, "sk-local", "m", "", "", "yes")
    assert code == 0
    assert not any(line.startswith("It offers") for line in user.shown)
    assert "HTTP 401: bad *** Enter another key with 'kimi setup'" in user.shown[-1]


def test_declined_test_request_is_not_sent(home: Home) -> None:
    with loopback(error_reply(404)) as server:
        home.variables = {"NO_PROXY": "127.0.0.1"}
        code, user = home.setup(None, number("vllm"), server.base_url, "", "m", "", "", "n")
        assert [request.path for request in server.requests] == ["/v1/models"]
    assert code == 0
    assert user.shown[-1] == "Check it with 'kimi doctor'."


def test_empty_answers_accept_the_defaults(home: Home) -> None:
    assert home.setup(None, "", "", "sk-typed", "", "", "")[0] == 0
    assert home.config["default_model"] == "kimi-k2-thinking"
    assert home.config["providers"]["kimi"]["api_key"] == "sk-typed"
    code, user = home.setup(None, number("kimi"), "", "", "kimi-latest", "", "none")
    assert code == 0
    assert "empty to keep the stored one" in user.asked[2]
    assert home.config["providers"]["kimi"]["api_key"] == "sk-typed"
    assert set(home.config["models"]) == {"kimi-k2-thinking", "kimi-latest"}


def test_given_options_are_not_asked_or_become_defaults(home: Home) -> None:
    home.variables = {"MY_KEY": "sk-mine"}
    code, user = home.setup(
        SetupOptions(api_key_env="MY_KEY", model="qwen3", context_size=4096, capabilities=("image_in",)),
        number("ollama"), "", "", "", "", "n",
    )  # fmt: skip
    assert code == 0
    assert not any("key" in question.lower() for question in user.asked)
    assert home.config["providers"]["ollama"]["api_key"] == "sk-mine"
    assert home.config["models"]["qwen3"] == {
        "provider": "ollama", "model": "qwen3", "max_context_size": 4096, "capabilities": ["image_in"],
    }  # fmt: skip
    assert home.setup(SetupOptions(api_key_env="NOT_SET"), number("ollama"), "")[0] == 1


def test_invalid_key_is_asked_again(home: Home) -> None:
    code, user = home.setup(None, number("anthropic"), "", "two words", "clé", "sk-ant", "claude", "", "")
    assert code == 0
    assert user.shown.count("A key is one word of printable characters.") == 2
    assert home.config["providers"]["anthropic"]["api_key"] == "sk-ant"


def test_aborted_setup_changes_nothing(home: Home, capfd: pytest.CaptureFixture[str]) -> None:
    home.setup(SetupOptions("ollama", model="m"))
    before = (home.share / "config.toml").read_bytes()
    assert home.setup(None, number("kimi"), "")[0] == 1
    assert (home.share / "config.toml").read_bytes() == before
    assert capfd.readouterr().err == "\nNothing was changed.\n"


# --- without questions -----------------------------------------------------------------------------------------


def test_a_variable_that_is_read_at_each_start_is_not_copied(home: Home) -> None:
    for type_, variable in API_KEY_VARIABLES.items():
        home.variables = {}
        wanted = SetupOptions(type_, "https://x/v1", variable, "m")
        assert home.setup(wanted)[0] == 0
        assert home.config["providers"][type_]["api_key"] == ""
        home.variables = {variable: "sk-from-the-environment"}
        model = load_settings(Flags(str(home.share)), home.environ).model
        assert model is not None
        assert model.api_key == "sk-from-the-environment"


def test_other_variables_are_copied_into_the_file(home: Home) -> None:
    home.variables = {"MINE": " sk-mine\n"}
    assert home.setup(SetupOptions("openrouter", api_key_env="MINE", model="a/b"))[0] == 0
    assert home.config["providers"]["openrouter"]["api_key"] == "sk-mine"
    home.variables = {"OPENAI_API_KEY": "sk-other"}
    assert home.setup(SetupOptions("openrouter", model="a/c", capabilities=("none",)))[0] == 0
    assert home.config["providers"]["openrouter"]["api_key"] == "sk-mine"
    home.variables |= {"MINE": "sk-new"}
    _, user = home.setup(SetupOptions("openrouter", api_key_env="MINE", model="a/c"))
    assert "The variable OPENAI_API_KEY is set: its key is used instead of the one in the file." in user.shown


def test_vertex_needs_a_project_and_no_key(home: Home) -> None:
    assert home.setup(None, number("vertexai"), "", "", "my-project", "europe-west1", "gemini-pro", "", "")[0] == 0
    provider = home.config["providers"]["vertexai"]
    assert provider["env"] == {"GOOGLE_CLOUD_PROJECT": "my-project", "GOOGLE_CLOUD_LOCATION": "europe-west1"}
    assert provider["api_key"] == ""


def test_existing_model_name_is_prefixed_with_its_provider(home: Home) -> None:
    assert home.setup(SetupOptions("ollama", model="m", context_size=5))[0] == 0
    assert home.setup(SetupOptions("vllm", model="m"))[0] == 0
    assert home.config["default_model"] == "vllm/m"
    assert home.config["models"]["m"]["provider"] == "ollama"


@pytest.mark.parametrize(
    ("wanted", "report"),
    [
        (SetupOptions("nobody"), "There is no provider 'nobody' to set up; choose one of: kimi, kimi-cn, "),
        (SetupOptions("ollama"), "The provider 'ollama' needs --model"),
        (SetupOptions("openai_legacy", model="m"), "The provider 'openai_legacy' needs --base-url."),
        (SetupOptions("ollama", "ftp://x", model="m"), "The base URL must look like https://host/path."),
        (SetupOptions("ollama", "http://[", model="m"), "The base URL must look like https://host/path."),
        (SetupOptions("ollama", model="a\nb"), "The id of the model must not be empty"),
        (SetupOptions("ollama", model="m", capabilities=("sings",)), "There is no capability 'sings'"),
        (
            SetupOptions("deepseek"),
            "The provider 'deepseek' needs a key: name the variable that holds it, --api-key-env.",
        ),
        (SetupOptions("deepseek", api_key_env="NOT_SET"), "The environment variable NOT_SET is not set."),
        (SetupOptions("deepseek", api_key_env="WORDS"), "The environment variable WORDS holds no key"),
        (SetupOptions(remove_key=True), "Name the provider with --provider; these have a key: none."),
        (SetupOptions("nobody", remove_key=True), "Name the provider with --provider; these have a key: none."),
    ],
)
def test_invalid_setup_options_are_refused(
    home: Home, wanted: SetupOptions, report: str, capfd: pytest.CaptureFixture[str]
) -> None:
    home.variables = {"WORDS": "sk-two words"}
    code, user = home.setup(wanted)
    error = capfd.readouterr().err
    assert (code, user.asked, user.shown) == (1, [], [])
    assert error.startswith(report)
    assert error.endswith("\nNothing was changed.\n")
    assert "sk-two" not in error
    assert "providers" not in home.config


def test_a_broken_file_is_reported(home: Home, capfd: pytest.CaptureFixture[str]) -> None:
    home.share.mkdir()
    (home.share / "config.toml").write_text("a b")
    assert home.setup(SetupOptions("ollama", model="m"))[0] == 1
    assert capfd.readouterr().err.startswith(f"Invalid TOML in configuration file {home.share / 'config.toml'}: ")


# --- the coding plan, and providers that have no key ---------------------------------------------------------------

PLAN = "https://api.kimi.com/coding/v1"


@pytest.mark.spec("R-273")
def test_the_coding_plan_brings_its_services_with_the_key_of_the_provider(home: Home) -> None:
    home.variables = {"MINE": "sk-1234567890"}
    assert home.setup(SetupOptions("kimi-code", api_key_env="MINE"))[0] == 0
    assert home.config["services"] == {
        "moonshot_search": {"base_url": f"{PLAN}/search", "api_key": ""},
        "moonshot_fetch": {"base_url": f"{PLAN}/fetch", "api_key": ""},
    }
    web = load_settings(Flags(str(home.share)), home.environ).web
    assert web.search is not None
    assert web.fetch is not None
    assert (web.search.api_key, web.fetch.base_url) == ("sk-1234567890", f"{PLAN}/fetch")
    assert home.setup(SetupOptions("kimi", api_key_env="MINE"))[0] == 0
    assert (
        load_settings(Flags(str(home.share)), {**home.environ, "KIMI_BASE_URL": "https://x.test/v1"}).web.search is None
    )


@pytest.mark.spec("R-273")
def test_a_service_with_a_key_of_its_own_is_left_alone(home: Home) -> None:
    home.variables = {"MINE": "sk-1234567890"}
    home.share.mkdir()
    own = '[services.moonshot_search]\nbase_url = "https://s.test"\napi_key = "sk-own-service"\n'
    (home.share / "config.toml").write_text(own)
    assert home.setup(SetupOptions("kimi-code", api_key_env="MINE"))[0] == 0
    assert home.config["services"]["moonshot_search"] == {"base_url": "https://s.test", "api_key": "sk-own-service"}
    assert home.setup(SetupOptions("kimi-code", base_url="https://x.test/v1", api_key_env="MINE"))[0] == 0


@pytest.mark.spec("R-273")
def test_no_services_are_written_for_the_plan_at_another_address(home: Home) -> None:
    home.variables = {"MINE": "sk-1234567890"}
    assert home.setup(SetupOptions("kimi-code", base_url="https://x.test/v1", api_key_env="MINE"))[0] == 0
    assert "services" not in home.config


@pytest.mark.spec("R-272")
def test_a_configured_provider_gets_its_key_without_questions(home: Home, capfd: pytest.CaptureFixture[str]) -> None:
    home.variables = {"MINE": "sk-1234567890"}
    home.share.mkdir()
    text = f'[providers."managed:x"]\ntype = "kimi"\nbase_url = "{PLAN}"\napi_key = ""\noauth = {{ key = "k" }}\n'
    model = '[models.m]\nprovider = "managed:x"\nmodel = "m"\nmax_context_size = 1000\n'
    (home.share / "config.toml").write_text(f"# mine\n{text}{model}")
    assert home.setup(SetupOptions("managed:x", api_key_env="MINE", model="other"))[0] == 1
    assert "'managed:x' is configured already" in capfd.readouterr().err
    code, user = home.setup(SetupOptions("managed:x", api_key_env="MINE"))
    assert (code, user.asked) == (0, [])
    assert home.config["providers"]["managed:x"]["api_key"] == "sk-1234567890"
    assert home.config["default_model"] == "m"
    assert home.config["services"]["moonshot_fetch"]["base_url"] == f"{PLAN}/fetch"
    assert (home.share / "config.toml").read_text().startswith("# mine")


# --- removing a key --------------------------------------------------------------------------------------------


def test_keys_can_be_removed(home: Home, capfd: pytest.CaptureFixture[str]) -> None:
    home.variables = {"MINE": "sk-1234567890"}
    for name in ("deepseek", "openrouter", "kimi"):
        assert home.setup(SetupOptions(name, api_key_env="MINE", model="m"))[0] == 0
    assert home.setup(SetupOptions(remove_key=True))[0] == 1
    assert "these have a key: deepseek, openrouter, kimi" in capfd.readouterr().err
    assert home.setup(SetupOptions("openrouter", remove_key=True))[0] == 0
    code, user = home.setup(None, str(len(PRESETS) + 1))
    assert code == 0
    assert user.shown[-1] == f"Removed the key of provider 'deepseek' from {home.share / 'config.toml'}."
    assert home.setup(SetupOptions(remove_key=True))[0] == 0
    assert [provider["api_key"] for provider in home.config["providers"].values()] == ["", "", ""]
    left = [path.read_bytes() for path in home.share.rglob("*") if path.is_file()]
    assert not any(b"sk-1234567890" in content for content in left)
