"""Cassettes: recorded from every provider type, played back without a network, refused when they do not fit."""

from __future__ import annotations

import json
import os
import stat
from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import anyio
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kimi.application.ports import ChatModel, ModelItem
from kimi.application.settings.settings import ModelSettings
from kimi.domain.content.message import Function, Message, ToolCall, ToolCallPart, user_message
from kimi.domain.content.parts import ImagePart, MediaUrl, TextPart, ThinkPart
from kimi.domain.content.stream import StreamPart
from kimi.domain.errors import APIStatusError, ChatProviderError, ConfigError, ModelError
from kimi.infrastructure.http.client import HttpClient, HttpLimits
from kimi.infrastructure.models.offline.cassette import Cassette, RecordingModel, ReplayModel, load_calls
from kimi.infrastructure.models.offline.cassette_secrets import collect_secrets, mask_secrets
from kimi.infrastructure.models.provider_secrets import make_mask
from kimi.infrastructure.models.provider_types import make_model_opener, open_model
from tests.support.chat_model.checks import EVERY, OVER_HTTP, Check, serves_several_callers_at_a_time
from tests.support.chat_model.stage import CAPABILITIES, WINDOW, Failure, HttpStage, Rig, ScriptStage, Stage, merged
from tests.support.dialects.script import Answer, Row
from tests.support.dialects.table import ROWS
from tests.support.providers.provider_server import Reply, dumps, provider
from tests.support.store_children import end_child, start_child

pytestmark = pytest.mark.anyio

HISTORY = [user_message("hello")]
KEY = "sk-secret-0123456789"
CHAT = ROWS[0]
BIG = Answer("let me see", None, "good\u2028day 🌙", (("tc1", "Shell", '{"command":"ls"}'), ("tc2", "Shell", "{}")))


@asynccontextmanager
async def recording(path: Path | str, *replies: Reply, row: Row = CHAT, **more: Any) -> AsyncGenerator[ChatModel]:
    """A model before a server with these replies, recorded to `path`."""
    async with provider(replies) as server:
        http = HttpClient({}, HttpLimits(read_s=2))
        given: dict[str, Any] = {"api_key": KEY, "capabilities": frozenset({"thinking"}), **row.settings, **more}
        settings = ModelSettings(provider_name="p", type=row.type, model="m", base_url=server.base_url, **given)
        yield open_model(settings, "session-1", http, lambda: "kimi-wire/2", {"KIMI_RECORD": str(path)})
        await http.close()


def replaying(path: Path | str, session: str = "session-2", **environ: str) -> ChatModel:
    settings = ModelSettings(provider_name="p", type="_replay", model="m", env={"KIMI_REPLAY": str(path)})
    return open_model(settings, session, HttpClient({}), lambda: "", environ)


async def ask(
    model: ChatModel, history: Sequence[Message] = HISTORY, seen: list[ModelItem] | None = None
) -> list[ModelItem]:
    items: list[ModelItem] = [] if seen is None else seen
    async with model.stream("system", history, [], 0) as stream:
        async for item in stream:
            items.append(item)
    return items


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.type)
async def test_recorded_answers_are_replayed_identically(row: Row, tmp_path: Path) -> None:
    path = tmp_path / "tape.jsonl"
    signature = "EsignedThought==" if row.dialect.signs else None
    answers = [Answer("hm", signature, BIG.text, BIG.calls), Answer(text="on and on " * 50, usage=False)]
    async with recording(path, *map(row.dialect.reply, answers), row=row) as model:
        recorded = [await ask(model), await ask(model, [*HISTORY, user_message("again")])]
    played = replaying(path)
    assert [await ask(played), await ask(played, [*HISTORY, user_message("again")])] == recorded
    assert KEY not in path.read_text("utf-8")


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.type)
async def test_failures_are_replayed_identically(row: Row, tmp_path: Path) -> None:
    path = tmp_path / "tape.jsonl"
    limit = Reply(status=429, body=dumps(row.dialect.error(429, "slow down")), headers={"Retry-After": "7"})
    cut = row.dialect.cut(Answer(text="lost"), fault="reset")
    replies = [limit, cut, row.dialect.reply(Answer(think="hm")), row.dialect.reply(Answer(text="well"))]
    async with recording(path, *replies, row=row) as model:
        recorded = [await outcome(model) for _ in replies]
    played = replaying(path)
    assert [await outcome(played) for _ in replies] == recorded
    assert recorded[0][1] == ("APIStatusError", recorded[0][1][1], True, 429, 7.0)
    assert [one[1][:1] for one in recorded[1:]] == [("APIConnectionError",), ("APIEmptyResponseError",), ()]


async def outcome(model: ChatModel) -> tuple[list[ModelItem], tuple[Any, ...]]:
    """The items that came, and the failure."""
    seen: list[ModelItem] = []
    try:
        await ask(model, seen=seen)
    except ChatProviderError as error:
        more = (error.status_code, error.retry_after) if isinstance(error, APIStatusError) else ()
        return seen, (type(error).__name__, str(error), error.transient, *more)
    return seen, ()


async def test_calls_are_ordered_by_their_begin(tmp_path: Path) -> None:
    path = tmp_path / "tape.jsonl"
    slow, quick = CHAT.dialect.reply(Answer(text="slow"), event_delay_s=0.05), CHAT.dialect.reply(Answer(text="quick"))
    async with recording(path, slow, quick) as model, anyio.create_task_group() as group:
        group.start_soon(ask, model, [user_message("first")])
        await anyio.sleep(0.05)
        group.start_soon(ask, model, [user_message("second")])
    assert [call.fingerprint.said for call in load_calls(str(path))] == ["first", "second"]


async def test_recording_is_appended_and_may_be_one_file_per_session(tmp_path: Path) -> None:
    template = tmp_path / "{session}.jsonl"
    for text in ("one", "two"):
        async with recording(template, CHAT.dialect.reply(Answer(text=text))) as model:
            await ask(model)
    path = tmp_path / "session-1.jsonl"
    assert len(load_calls(str(path))) == 2
    if os.name == "posix":
        assert stat.S_IMODE(path.stat().st_mode) == 0o600


async def test_cancelled_call_is_replayed_up_to_its_end(tmp_path: Path) -> None:
    path = tmp_path / "tape.jsonl"
    async with (
        recording(path, CHAT.dialect.cut(Answer(text="ab"), fault="stall")) as model,
        model.stream("system", HISTORY, [], 0) as items,
    ):
        first = await anext(items)
    seen: list[ModelItem] = []
    with pytest.raises(ChatProviderError, match="ends here"):
        await ask(replaying(path), seen=seen)
    assert seen == [first]


@pytest.mark.parametrize("check", [*EVERY, *OVER_HTTP], ids=lambda check: check.__name__)
async def test_recording_model_passes_the_contract(check: Check[HttpStage], tmp_path: Path) -> None:
    path = str(tmp_path / "tape.jsonl")
    await check(HttpStage(CHAT, wrap=lambda model: RecordingModel(model, path, lambda text: text)))


@dataclass(frozen=True)
class ReplayStage:
    """Models that play what a scripted one has said before."""

    path: Path

    @asynccontextmanager
    async def say(self, *turns: Answer | Failure) -> AsyncGenerator[Rig]:
        """See `Stage`."""
        self.path.unlink(missing_ok=True)
        async with ScriptStage().say(*turns) as scripted:
            model = RecordingModel(scripted.model, str(self.path), lambda text: text)
            for _ in turns:
                await outcome(model)
        settings = ModelSettings(
            provider_name="p", type="_replay", model="m", capabilities=CAPABILITIES, max_context_size=WINDOW
        )
        yield Rig(ReplayModel(Cassette(str(self.path)), settings, lambda text: text))


@pytest.mark.parametrize("check", [one for one in EVERY if one is not serves_several_callers_at_a_time])
async def test_replaying_model_passes_the_contract(check: Check[Stage], tmp_path: Path) -> None:
    await check(ReplayStage(tmp_path / "tape.jsonl"))


# --- what does not fit ------------------------------------------------------------------------------------------


async def recorded_file(tmp_path: Path, *texts: str) -> Path:
    path = tmp_path / "tape.jsonl"
    async with recording(path, *(CHAT.dialect.reply(Answer(text=text)) for text in texts)) as model:
        for _ in texts:
            await ask(model)
    return path


async def test_different_request_is_refused_and_consumes_no_recording(tmp_path: Path) -> None:
    played = replaying(await recorded_file(tmp_path, "good day"))
    for other in ([user_message("good night")], [*HISTORY, Message("assistant", (TextPart("x"),)), *HISTORY]):
        with pytest.raises(ChatProviderError, match=r'does not match at call 1: "hello" \(messages: u\) was recorded'):
            await ask(played, other)
    assert await ask(played)


async def test_exhausted_cassette_is_an_error(tmp_path: Path) -> None:
    played = replaying(await recorded_file(tmp_path, "good day"))
    await ask(played)
    with pytest.raises(ChatProviderError, match=r"is exhausted: it ends before call 2\. Record it again") as raised:
        await ask(played)
    assert not raised.value.transient


async def test_models_of_a_session_share_the_cassette_position(tmp_path: Path) -> None:
    path = await recorded_file(tmp_path, "one", "two")
    first = [await ask(replaying(path, "a")), await ask(replaying(path, "a"))]
    assert first == [await ask(replaying(path, "b")), await ask(replaying(path, "b"))]
    assert first[0] != first[1]


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (None, "cannot be read"),
        ("", "is not a cassette"),
        ("hello\n", r'is not a cassette: its first line must be \{"cassette": 1\}\.'),
        ('{"cassette":2}\n', "has version 2; this program knows version 1"),
        ('{"cassette":1}\n{"part":{}}\n', "damaged at line 2"),
        ('{"cassette":1}\n{"call":{"roles":"u","said":"x","digest":"d"}}\n{"par', "damaged at line 3"),
        ('{"cassette":1}\n{"call":{}}\n{"end":{}}\n', "cannot be understood"),
        ('{"cassette":1}\n{"call":7}\n', "cannot be understood"),
        ('{"cassette":1}\n{"call":{"roles":"u","said":"x","digest":"d","started":"then"}}\n', "cannot be understood"),
        ('{"cassette":1}\n{"call":{"roles":"u","said":"x","digest":"d","started":null}}\n', "cannot be understood"),
        ('{"cassette":1}\n{"call":{"roles":"u","said":"x","digest":"d"}}\n{"part":{}}\n', "cannot be understood"),
    ],
)
def test_unreplayable_file_is_refused(tmp_path: Path, content: str | None, message: str) -> None:
    path = tmp_path / "tape.jsonl"
    if content is not None:
        path.write_text(content)
    with pytest.raises(ConfigError, match=message):
        replaying(path)


def test_replay_without_cassette_is_refused_at_the_start() -> None:
    settings = ModelSettings(provider_name="p", type="_replay", model="m")
    with pytest.raises(ConfigError, match="KIMI_REPLAY is required"):
        make_model_opener(settings, HttpClient({}), "2", {})


@pytest.mark.parametrize("content", ["my notes\n", '{"cassette":9}\n'])
async def test_file_that_is_not_a_cassette_is_not_overwritten(tmp_path: Path, content: str) -> None:
    path = tmp_path / "notes.txt"
    path.write_text(content)
    with pytest.raises(ConfigError):
        async with recording(path):
            pass
    assert path.read_text() == content


async def test_unwritable_cassette_path_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="cannot record to"):
        async with recording(tmp_path / "missing" / "tape.jsonl"):
            pass


async def test_answer_that_cannot_be_recorded_is_still_returned(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    path = tmp_path / "place" / "tape.jsonl"
    path.parent.mkdir()
    async with recording(path, CHAT.dialect.reply(Answer(text="well"))) as model:
        path.unlink()
        path.parent.rmdir()
        assert await ask(model)
    assert "could not be recorded" in caplog.text


LIMITED = """
import anyio, resource
from kimi.domain.content.message import user_message
from kimi.infrastructure.models.offline.cassette import RecordingModel
from kimi.infrastructure.models.offline.scripted import make_echo_model

async def main():
    model = RecordingModel(make_echo_model(frozenset(), 1000), sys.argv[1], str)
    _, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    for script, limit in (("text: a", 4000), ("text: " + "b" * 9000, 4000), ("text: c", hard)):
        resource.setrlimit(resource.RLIMIT_FSIZE, (limit, hard))
        async with model.stream("", [user_message(script)], (), 0) as items:
            assert [item async for item in items]
    print("done", flush=True)

anyio.run(main)
"""


async def test_a_disk_that_fills_up_leaves_a_cassette_that_can_be_played(tmp_path: Path) -> None:
    path = tmp_path / "tape.jsonl"
    child = start_child(LIMITED, str(path))
    try:
        assert child.stdout is not None
        assert child.stdout.readline() == "done\n"
    finally:
        end_child(child)
    assert [call.fingerprint.said for call in load_calls(str(path))] == ["text: a", "text: c"]


# --- secrets ----------------------------------------------------------------------------------------------------


async def test_secrets_are_absent_from_cassettes(tmp_path: Path) -> None:
    path = tmp_path / "tape.jsonl"
    header, variable = "header-secret-1", 'quoted"secret\\2ß'
    answer = Answer(
        f"the key is {KEY}",
        None,
        f"really: {KEY}, {header}, {variable}!",
        (("c", "Shell", json.dumps([KEY, variable])),),
    )
    async with provider([CHAT.dialect.reply(answer)]) as server:
        http = HttpClient({})
        environ = {"KIMI_RECORD": str(path), "SOME_TOKEN": variable, "HOME": "not-a-secret"}
        more: dict[str, Any] = {"custom_headers": {"X-Key": header}, "capabilities": frozenset({"thinking"})}
        settings = ModelSettings(
            provider_name="p", type="kimi", model="m", base_url=server.base_url, api_key=KEY, **more
        )
        model = open_model(settings, "s", http, lambda: "", environ)
        await ask(model, [user_message(f"my key is {KEY} {variable}")])
        await http.close()
    (call,) = load_calls(str(path))
    said = "".join(item.text for item in call.items if isinstance(item, TextPart))
    assert said == "really: ***, ***, ***!"
    assert [part.function.arguments for part in merged(call.items) if isinstance(part, ToolCall)] == ['["***", "***"]']
    text = path.read_text("utf-8")
    for secret in (KEY, header, variable, json.dumps(variable)[1:-1], server.base_url):
        assert secret not in text


@given(
    st.lists(st.sampled_from(["sec", "ret-12", "secret-123", "345", " ", "x"]), max_size=12),
    st.sampled_from([TextPart, ThinkPart, ToolCallPart]),
)
def test_secret_is_masked_across_any_chunks(pieces: list[str], kind: type[Any]) -> None:
    mask = make_mask(["secret-12345"])
    head: list[StreamPart] = [ToolCall("c", Function("Shell", ""))] if kind is ToolCallPart else []
    parts: list[StreamPart] = [*head, *map(kind, pieces)]
    clean = mask_secrets(parts, mask)
    assert "".join(map(text_of, clean)) == mask("".join(pieces))
    assert mask("".join(pieces)) != "".join(pieces) or clean == parts


def text_of(part: StreamPart) -> str:
    match part:
        case TextPart(text=text) | ThinkPart(think=text):
            return text
        case ToolCallPart():
            return part.arguments_part or ""
        case _:
            return part.function.arguments or "" if isinstance(part, ToolCall) else ""


def test_other_parts_are_unchanged() -> None:
    picture = ImagePart(image_url=MediaUrl("data:image/png;base64,iVBORw0KGgo="))
    parts: list[StreamPart] = [TextPart("a secret-12345"), picture, TextPart("b")]
    assert mask_secrets(parts, make_mask(["secret-12345"])) == [TextPart("a ***"), picture, TextPart("b")]


def test_secret_settings_and_variables_are_masked() -> None:
    variables = {"GOOGLE_CLOUD_LOCATION": "us-central1", "MY_API_KEY": "of-the-provider"}
    settings = ModelSettings(provider_name="p", type="kimi", model="m", api_key="none", env=variables)
    mask = make_mask(
        collect_secrets(settings, {"MY_PASSWORD": "correct horse", "X_KEY": "1", "HOME": "/home/somebody"})
    )
    values = "of-the-provider, correct horse, none, 1, us-central1, /home/somebody"
    assert mask(values) == "***, ***, none, 1, us-central1, /home/somebody"


async def test_recording_does_not_change_errors_without_a_model(tmp_path: Path) -> None:
    async with recording(tmp_path / "t", Reply(status=400, body=b"no")) as model:
        assert (model.name, model.context_size) == ("m", 100_000)
        with pytest.raises(ModelError):
            await ask(model)
