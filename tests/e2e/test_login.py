"""Configurations with an account login of kimi-cli: every driver says what to run; nothing is sent without a key."""

from __future__ import annotations

import json
import tomllib
from typing import Any

import pytest

from tests.support.program.terminal import terminal
from tests.support.program.wire_process import Json, Place
from tests.support.providers.loopback import loopback
from tests.support.providers.provider_server import text_reply

CODING_PLAN = "https://api.kimi.com/coding/v1"
LOGIN = """default_model = "kimi-code/kimi-for-coding"
[providers."managed:kimi-code"]
type = "kimi"
base_url = "@URL@"
api_key = "@KEY@"
oauth = { storage = "file", key = "oauth/kimi-code" }
[providers.local]
type = "openai_legacy"
base_url = "http://127.0.0.1:9/v1"
api_key = "none"
[models."kimi-code/kimi-for-coding"]
provider = "managed:kimi-code"
model = "kimi-for-coding"
max_context_size = 262144
[services.moonshot_search]
base_url = "@URL@/search"
api_key = "@KEY@"
oauth = { storage = "file", key = "../../oauth/kimi-code" }
"""
"""A configuration with an account login, as kimi-cli leaves it."""

MISSING = (
    "Provider 'managed:kimi-code' has no API key, only an account login of kimi-cli, which is not used here:"
    " run 'kimi setup', or set KIMI_API_KEY"
)


def configure(place: Place, key: str = "", url: str = CODING_PLAN) -> None:
    (place.share / "config.toml").write_text(LOGIN.replace("@KEY@", key).replace("@URL@", url))


# --- drivers ------------------------------------------------------------------------------------------------------


@pytest.mark.spec("R-271")
@pytest.mark.parametrize("output", ["text", "stream-json"])
def test_print_mode_says_what_to_run_and_sends_nothing(place: Place, output: str) -> None:
    with loopback(text_reply("no")) as server:
        configure(place, url=server.base_url)
        done = place.run("--print", "--output-format", output, "-p", "hi")
        assert server.requests == []
    assert done.returncode == 1
    told = done.stdout.decode()
    assert f"{MISSING}." in told


@pytest.mark.spec("R-271")
def test_the_page_where_keys_are_made_is_named(place: Place) -> None:
    configure(place)
    done = place.run("--quiet", "-p", "hi")
    assert f"{MISSING} (keys are made at https://www.kimi.com/code/console)." in done.stdout.decode()


@pytest.mark.spec("R-271")
def test_the_wire_answers_that_no_model_is_set_and_why(place: Place) -> None:
    with loopback(text_reply("no")) as server:
        configure(place, url=server.base_url)
        with place.wire() as kimi:
            kimi.initialize()
            error = kimi.prompt("hi")["error"]
            assert server.requests == []
    assert (error["code"], error["message"]) == (-32001, f"{MISSING}.")
    assert place.session_dirs() == [] or not [one for one in place.context() if one.get("role") == "user"]


@pytest.mark.spec("R-271")
def test_a_key_in_the_environment_is_enough(place: Place) -> None:
    with loopback(text_reply("it works")) as server:
        configure(place, url=server.base_url)
        place.environ = {"KIMI_API_KEY": "sk-from-outside"}
        done = place.run("--quiet", "-p", "hi")
        assert (done.returncode, done.stdout) == (0, b"it works\n")
        assert server.requests[0].headers["authorization"] == "Bearer sk-from-outside"


@pytest.mark.spec("R-271", "A-27")
def test_an_editor_is_told_to_authenticate_and_what_to_run(place: Place) -> None:
    configure(place)
    lines: list[Json] = [
        {"method": "initialize", "params": {"protocolVersion": 1}},
        {"method": "session/new", "params": {"cwd": str(place.work), "mcpServers": []}},
    ]
    sent = "".join(json.dumps({"jsonrpc": "2.0", "id": at, **line}) + "\n" for at, line in enumerate(lines))
    done = place.run("acp", stdin=sent.encode())
    error = next(found["error"] for line in done.stdout.splitlines() if (found := json.loads(line))["id"] == 1)
    assert (error["code"], error["message"]) == (-32000, "Authentication required")
    assert error["data"]["details"].startswith(MISSING)
    assert "https://www.kimi.com/code/console" in error["data"]["details"]
    assert error["data"]["authMethods"][0]["id"] == "login"


@pytest.mark.spec("R-271")
def test_the_shell_opens_the_setup(place: Place) -> None:
    configure(place)
    with terminal(place, columns=120, rows=40) as shown:
        shown.until("Enter a key for 'managed:kimi-code'")
        shown.type("1\r")
        shown.until("API key (not shown)")
        shown.type("\x04")
        shown.until("Nothing was changed.")


@pytest.mark.spec("R-271")
def test_doctor_names_the_login_and_asks_nobody(place: Place) -> None:
    with loopback(text_reply("no")) as server:
        configure(place, url=server.base_url)
        found = json.loads(place.run("doctor", "--json").stdout)["checks"]
        assert server.requests == []
    by_name: dict[str, Any] = {one["name"]: one for one in found}
    what, _, advice = MISSING.partition(": ")
    assert by_name["key"] == {"name": "key", "status": "failed", "message": f"{what}.", "advice": f"R{advice[1:]}."}
    assert by_name["endpoint"]["status"] == "skipped"


# --- login and logout ---------------------------------------------------------------------------------------------


@pytest.mark.spec("R-272")
def test_logout_removes_keys_and_logins_and_is_content_with_nothing(place: Place) -> None:
    nothing = place.run("logout")
    assert (nothing.returncode, nothing.stdout) == (0, b"Nothing is stored: there is no key and no login.\n")
    configure(place, "sk-planted-secret")
    login = place.share / "credentials" / "kimi-code.json"
    login.parent.mkdir()
    login.write_text('{"refresh_token": "x"}')
    (login.parent / "other.json").write_text("{}")
    done = place.run("logout", "--json")
    told = json.loads(done.stdout)
    assert (done.returncode, done.stderr, told["type"]) == (0, b"", "success")
    assert told["message"] == (
        f"Removed: the key of provider 'managed:kimi-code', the key of service 'moonshot_search', the login {login}."
    )
    left = [path.read_text() for path in place.share.rglob("*") if path.is_file()]
    assert not any("sk-planted-secret" in text or "refresh_token" in text for text in left)
    assert 'api_key = "none"' in (place.share / "config.toml").read_text()  # in place of a key, for a local server
    assert (login.parent / "other.json").exists()
    place.environ = {"KIMI_API_KEY": "sk-from-outside"}
    again = place.run("logout")
    assert again.returncode == 0
    assert again.stdout.startswith(b"Nothing is stored")
    assert b"KIMI_API_KEY" in again.stdout


@pytest.mark.spec("R-272")
def test_login_without_a_terminal_says_what_to_run(place: Place) -> None:
    done = place.run("login")
    assert (done.returncode, done.stdout) == (1, b"")
    assert b"run 'kimi login' or 'kimi setup' in a terminal" in done.stderr


@pytest.mark.spec("R-272")
def test_login_on_a_terminal_is_the_setup_and_takes_a_missing_key(place: Place) -> None:
    configure(place)
    with terminal(place, "login", columns=120) as shown:
        shown.until("Enter a key for 'managed:kimi-code'")
        shown.type("1\r")
        shown.until("Keys are made at https://www.kimi.com/code/console")
        shown.type("sk-new-key\r")
        shown.until("short question")
        assert "sk-new-key" not in shown.all_text
        shown.type("n\r")
        assert shown.wait() == 0
    written = tomllib.loads((place.share / "config.toml").read_text())
    assert written["providers"]["managed:kimi-code"]["api_key"] == "sk-new-key"
    assert written["default_model"] == "kimi-code/kimi-for-coding"
    assert written["services"]["moonshot_fetch"]["base_url"] == "https://api.kimi.com/coding/v1/fetch"


@pytest.mark.spec("R-272")
def test_logout_in_the_shell_removes_the_keys(place: Place) -> None:
    configure(place, "sk-planted-secret")
    with terminal(place, columns=120, rows=40) as shown:
        shown.idle()
        shown.type("/logout\r")
        shown.until("the key of provider 'managed:kimi-code'")
        assert "sk-planted-secret" not in shown.all_text
    assert "sk-planted-secret" not in (place.share / "config.toml").read_text()
