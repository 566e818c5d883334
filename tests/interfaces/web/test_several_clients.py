"""Clients of one session over WebSocket: one stream, one turn, one answer (wire spec 13.2, 13.3)."""

from __future__ import annotations

from pathlib import Path

import anyio
import pytest

from kimi.application.sessions.negotiate_initialize import InitializeOutcome
from kimi.domain.content.message import Function, ToolCall
from kimi.domain.content.parts import TextPart
from kimi.domain.errors import APIStatusError
from kimi.interfaces.web.sessions.hosted_session import Member, host_session
from tests.support.conversations import conversation_with
from tests.support.fakes import FakeModel
from tests.support.program.wire_process import Json, Place
from tests.support.web.hosting import Closed, Line, hosting, play

pytestmark = pytest.mark.anyio


@pytest.fixture
def place(tmp_path: Path) -> Place:
    place = Place(tmp_path)
    place.write_config("_echo")
    return place


def shell(command: str, call_id: str = "c") -> ToolCall:
    return ToolCall(call_id, Function("Shell", f'{{"command":"{command}"}}'))


@pytest.mark.spec("W-150")
async def test_the_messages_of_a_prompt_are_those_of_stdio(place: Place) -> None:
    """But for the position of each, and the notice for the other clients before the answer."""
    with place.wire() as kimi:
        kimi.initialize(client={"name": "test"})
        kimi.prompt('text: hello\nusage: {"input_other": 5}')
        expected = kimi.lines
    async with hosting(place) as web, web.connect(await web.new_session(place), None) as client:
        await client.initialize()
        await client.response(await client.prompt('text: hello\nusage: {"input_other": 5}'))
    received = [plain(line) for line in client.lines if line.get("method") != "connection"]
    assert [line for line in received if "method" in line] == [line for line in expected if "method" in line]
    results, on_stdio = ([line["result"] for line in lines if "result" in line] for lines in (received, expected))
    model = next(one for one in results[0]["slash_commands"] if one["name"] == "model")
    results[0]["slash_commands"].remove(model)  # other clients have their own way to choose one
    assert results == on_stdio


def plain(line: Json) -> Json:
    return {key: value for key, value in line.items() if key != "position"}


@pytest.mark.spec("W-151")
async def test_three_clients_get_the_same_messages_in_one_order(place: Place) -> None:
    model = FakeModel([[TextPart("a"), TextPart("b"), shell("echo hi")], [TextPart("done")]])
    async with hosting(place, play(model)) as web:
        session = await web.new_session(place)
        async with web.connect(session) as one, web.connect(session) as two, web.connect(session) as three:
            for client in (one, two, three):
                await client.until("Current")
            call = await one.prompt("go")
            for client in (one, two, three):
                request = await client.until("ApprovalRequest")
            await two.answer(request["id"], {"request_id": request["id"], "response": "approve"})
            await one.response(call)
            for client in (two, three):
                assert await client.until("PromptFinished") == {"status": "finished"}
    assert one.common == two.common == three.common
    assert one.types.count("RequestSettled") == 1


@pytest.mark.spec("W-152")
async def test_the_first_answer_settles_a_request_for_all_clients(place: Place, tmp_path: Path) -> None:
    model = FakeModel([[shell("touch made")], [TextPart("done")]])
    async with hosting(place, play(model)) as web:
        session = await web.new_session(place)
        async with web.connect(session) as one, web.connect(session) as two:
            call = await one.prompt("go")
            request = await one.until("ApprovalRequest")
            await two.until("ApprovalRequest")
            await one.answer(request["id"], {"request_id": request["id"], "response": "reject", "feedback": "no"})
            assert (await two.until("RequestSettled")) == {"request_id": request["id"]}
            await two.answer(request["id"], {"request_id": request["id"], "response": "approve"})
            assert (await one.response(call))["result"] == {"status": "finished"}
            answers = [line for line in one.lines if line.get("params", {}).get("type") == "ApprovalResponse"]
    assert [line["params"]["payload"]["response"] for line in answers] == ["reject"]
    assert not (place.work / "made").exists()


async def test_a_question_that_one_client_answers_is_settled_for_the_others(place: Place) -> None:
    asked = '{"questions":[{"question":"Which?","options":[{"label":"A"},{"label":"B"}]}]}'
    model = FakeModel([[ToolCall("q", Function("AskUserQuestion", asked))], [TextPart("done")]])
    async with hosting(place, play(model)) as web:
        session = await web.new_session(place)
        async with web.connect(session) as one, web.connect(session) as two:
            await one.initialize(capabilities={"supports_question": True})
            call = await one.prompt("go")
            request = await two.until("QuestionRequest")
            await two.answer(request["id"], {"request_id": request["id"], "answers": {"Which?": "A"}})
            assert (await one.until("RequestSettled")) == {"request_id": request["id"]}
            await one.response(call)
    results = [line for line in one.lines if line.get("params", {}).get("type") == "ToolResult"]
    assert "A" in results[0]["params"]["payload"]["return_value"]["output"]


@pytest.mark.spec("W-153")
async def test_the_end_of_a_prompt_is_told_to_all_clients_also_its_error(place: Place) -> None:
    model = FakeModel([[APIStatusError(402, "no credit")]])
    async with hosting(place, play(model)) as web:
        session = await web.new_session(place)
        async with web.connect(session) as one, web.connect(session) as two:
            answer = await one.response(await one.prompt("go"))
            told = await two.until("PromptFinished")
    assert answer["error"]["code"] == -32003
    assert told == {"error": {"code": -32003, "message": answer["error"]["message"]}}
    assert "no credit" in told["error"]["message"]


async def test_a_second_client_can_cancel_and_steer_the_turn_of_the_first(place: Place) -> None:
    reached = anyio.Event()

    async def wait() -> None:
        reached.set()
        await anyio.sleep_forever()

    model = FakeModel([[TextPart("thinking"), wait]])
    async with hosting(place, play(model)) as web:
        session = await web.new_session(place)
        async with web.connect(session) as one, web.connect(session) as two:
            call = await one.prompt("go")
            await reached.wait()
            assert (await two.ask("prompt", {"user_input": "me too"}))["error"]["code"] == -32000
            assert (await two.ask("steer", {"user_input": "left"}))["result"] == {"status": "steered"}
            assert (await two.ask("cancel"))["result"] == {}
            assert (await one.response(call))["result"] == {"status": "cancelled"}


@pytest.mark.spec("W-154")
async def test_a_handshake_during_a_turn_is_answered_and_counts_from_the_next_one(place: Place) -> None:
    go = anyio.Event()
    model = FakeModel([[go.wait, TextPart("one")], [TextPart("two")]])
    async with hosting(place, play(model)) as web:
        session = await web.new_session(place)
        async with web.connect(session) as one, web.connect(session) as two:
            call = await one.prompt("go")
            await two.until("StepBegin")
            offered = {"name": "ext", "description": "x", "parameters": {"type": "object"}}
            refused = await two.ask("initialize", {"protocol_version": "1.10", "external_tools": [offered]})
            assert refused["error"]["code"] == -32000
            result = await two.initialize(capabilities={"supports_question": True, "supports_usage": True})
            assert "model" in [command["name"] for command in result["slash_commands"]]
            go.set()
            await one.response(call)
            await one.response(await one.prompt("again"))
            await two.until("PromptFinished")
    tools = [{tool.name for tool in asked.tools} for asked in model.asked]
    assert ["AskUserQuestion" in names for names in tools] == [False, True]
    usages = [
        ["usage" in line["params"]["payload"] for line in client.common if line["params"]["type"] == "StatusUpdate"]
        for client in (one, two)
    ]
    assert set(usages[0]) == {False}
    assert set(usages[1]) == {True}


async def test_prompts_of_a_client_that_wants_no_commands_are_text_beside_others(place: Place) -> None:
    model = FakeModel([[TextPart("as text")]])
    async with hosting(place, play(model)) as web:
        session = await web.new_session(place)
        async with web.connect(session) as bridge, web.connect(session) as person:
            assert (await bridge.initialize(slash_commands=False))["slash_commands"] == []
            assert (await person.initialize())["slash_commands"]
            await bridge.response(await bridge.prompt("/yolo"))
            assert bridge.text == "as text"
            await person.response(await person.prompt("/yolo"))
    assert "You only live once" in person.text
    assert len(model.asked) == 1


async def test_hooks_of_a_client_end_with_its_connection(place: Place) -> None:
    model = FakeModel([[TextPart("one")], [TextPart("two")]])
    subscription = {"id": "h", "event": "UserPromptSubmit", "matcher": "", "timeout": 60}
    async with hosting(place, play(model)) as web:
        session = await web.new_session(place)
        async with web.connect(session) as one:
            async with web.connect(session) as two:
                await two.initialize(hooks=[subscription])
                await one.prompt("go")
                asked = await two.until("HookRequest")
                await two.answer(asked["id"], {"action": "block", "reason": "not now"})
                await one.until("PromptFinished")
            assert one.text == "not now"
            await anyio.sleep(0.05)
            await one.response(await one.prompt("again"))
    assert one.text == "not nowone"


# --- clients that come back ---------------------------------------------------------------------------------------


@pytest.mark.spec("W-155")
async def test_a_client_cut_off_in_a_stream_misses_nothing_and_gets_nothing_twice(place: Place) -> None:
    pieces = [TextPart(f"{number} ") for number in range(3000)]
    cut, seen = anyio.Event(), anyio.Event()
    model = FakeModel([[*pieces[:1000], cut.wait, *pieces[1000:2000], seen.wait, *pieces[2000:]]])
    async with hosting(place, play(model)) as web, Line(int(web.base.rpartition(":")[2])).laid() as line:
        session = await web.new_session(place)
        async with web.connect(session) as steady, web.connect(session, base=line.base) as mobile:
            for client in (steady, mobile):
                await client.until("Current")
            call = await steady.prompt("go")
            while "500 " not in mobile.text:
                await mobile.next_line()
            line.cut()
            cut.set()
            while "1999 " not in steady.text:
                await steady.next_line()
            line.mend()
        async with web.connect(session) as steady, web.connect(session, mobile.position, base=line.base) as back:
            assert await back.until("Attached") == {"mode": "resumed"}
            current = await back.until("Current")
            assert current["state"] == "running"
            seen.set()
            assert await back.until("PromptFinished") == {"status": "finished"}
            await steady.until("PromptFinished")
    expected = "".join(piece.text for piece in pieces)
    assert mobile.text + back.text == expected
    assert steady.text == expected
    positions = [int(line["position"].partition(".")[2]) for line in (*mobile.common, *back.common)]
    assert positions == list(range(1, len(positions) + 1))
    assert call == "c1"


@pytest.mark.spec("W-156")
async def test_requests_that_wait_come_again_to_a_client_that_comes_back(place: Place) -> None:
    model = FakeModel([[shell("echo hi")], [TextPart("done")]])
    async with hosting(place, play(model)) as web:
        session = await web.new_session(place)
        async with web.connect(session) as first:
            await first.prompt("go")
            asked = await first.until("ApprovalRequest")
        async with web.connect(session, first.position) as back:
            assert (await back.until("Current"))["state"] == "waiting"
            again = await back.next_line()
            assert again["method"] == "request"
            assert "position" not in again
            assert again["params"]["payload"] == asked
            await back.answer(asked["id"], {"request_id": asked["id"], "response": "approve"})
            assert await back.until("PromptFinished") == {"status": "finished"}
    assert back.types.count("ApprovalRequest") == 1
    assert "done" in back.text


@pytest.mark.spec("W-157")
async def test_a_client_that_opens_a_session_in_a_turn_gets_the_record_then_the_rest(place: Place) -> None:
    go = anyio.Event()
    first = [TextPart("first answer")]
    second = [TextPart("half "), TextPart("of "), go.wait, TextPart("the "), TextPart("answer")]
    model = FakeModel([first, second])
    async with hosting(place, play(model)) as web:
        session = await web.new_session(place)
        async with web.connect(session) as one:
            await one.response(await one.prompt("one"))
            await one.prompt("two")
            while not one.text.endswith("of "):
                await one.next_line()
            async with web.connect(session) as two:
                assert await two.until("Attached") == {"mode": "replayed"}
                assert (await two.until("Current"))["state"] == "running"
                assert two.text == "first answerhalf of "
                go.set()
                await two.until("PromptFinished")
                await one.until("PromptFinished")
    assert two.text == one.text == "first answerhalf of the answer"
    kinds = [kind for kind in two.types if kind in ("TurnBegin", "TurnEnd")]
    assert kinds == ["TurnBegin", "TurnEnd"] * 2


@pytest.mark.spec("W-158")
@pytest.mark.parametrize("after", ["zzzzzzzz.3", "", "x", "start.1", "9" * 30, "é.1", "a.\u0663"])
async def test_a_position_that_is_not_known_is_answered_with_the_whole_record(place: Place, after: str) -> None:
    model = FakeModel([[TextPart("hello")]])
    async with hosting(place, play(model)) as web:
        session = await web.new_session(place)
        async with web.connect(session) as one:
            await one.response(await one.prompt("go"))
        async with web.connect(session, after) as back:
            assert await back.until("Attached") == {"mode": "replayed"}
            await back.until("Current")
    assert back.text == "hello"


async def test_a_client_without_a_position_gets_what_happens_from_now_on(place: Place) -> None:
    model = FakeModel([[TextPart("old")], [TextPart("new")]])
    async with hosting(place, play(model)) as web:
        session = await web.new_session(place)
        async with web.connect(session) as one:
            await one.response(await one.prompt("go"))
            async with web.connect(session, None) as two:
                assert await two.until("Attached") == {"mode": "live"}
                await one.response(await one.prompt("more"))
                await two.until("PromptFinished")
                replayed = await two.ask("replay")
    assert replayed["result"]["status"] == "finished"
    assert two.text == "newoldnew"


@pytest.mark.spec("W-159")
async def test_a_turn_goes_on_while_no_client_is_connected(place: Place) -> None:
    go = anyio.Event()
    model = FakeModel([[TextPart("begun "), go.wait, TextPart("and done")]])
    async with hosting(place, play(model)) as web:
        session = await web.new_session(place)
        async with web.connect(session) as first:
            await first.prompt("go")
            while "begun" not in first.text:
                await first.next_line()
        go.set()
        async with web.connect(session, first.position) as back:
            assert await back.until("PromptFinished") == {"status": "finished"}
    assert first.text + back.text == "begun and done"


@pytest.mark.spec("W-160")
async def test_joined_messages_are_the_same_in_fewer_frames(place: Place) -> None:
    model = FakeModel([[TextPart(f"{number} ") for number in range(500)]])
    async with hosting(place, play(model)) as web:
        session = await web.new_session(place)
        async with web.connect(session) as one, web.connect(session, batch="1") as two:
            for client in (one, two):
                await client.until("Current")
            await one.response(await one.prompt("go"))
            await two.until("PromptFinished")
    assert one.common == two.common


@pytest.mark.spec("W-185")
async def test_a_client_that_is_back_ends_its_earlier_connection(place: Place) -> None:
    """What that one has sent and nobody has read yet would be done twice: the client sends it again."""
    model = FakeModel([[TextPart("once")], [TextPart("twice")]])
    async with hosting(place, play(model)) as web:
        session = await web.new_session(place)
        async with web.connect(session, client="page-1") as old, web.connect(session, client="page-2") as other:
            for client in (old, other):
                await client.until("Current")
            for _ in range(520):
                await old.call("ping")  # so many that the rest waits to be read
            await old.prompt("go")
            async with web.connect(session, client="page-1") as new:
                await new.until("Current")
                await new.response(await new.prompt("go"))
                with pytest.raises(Closed) as ended:
                    await old.until("never")
                assert ended.value.code == 4411
                assert await other.until("PromptFinished") == {"status": "finished"}
                assert (await new.ask("prompt", {"user_input": "more"}))["result"] == {"status": "finished"}
    began = [line["params"]["payload"] for line in new.common if line["params"]["type"] == "TurnBegin"]
    assert [turn["user_input"] for turn in began] == ["go", "more"]


@pytest.mark.spec("W-185")
@pytest.mark.parametrize("name", ["", "a b", "x" * 65])
async def test_a_name_of_a_client_that_none_can_have_is_refused(place: Place, name: str) -> None:
    async with hosting(place) as web:
        session = await web.new_session(place)
        async with web.connect(session, client=name) as client:
            assert (await client.until("Refused"))["code"] == "invalid"


@pytest.mark.spec("W-185")
async def test_an_earlier_connection_that_is_opened_later_ends() -> None:
    """Clients of a session that is being opened may overtake each other."""
    closed: list[str] = []

    def member(label: str, came_at: float, name: str | None = "page-1") -> Member:
        return Member(lambda: None, lambda code: closed.append(f"{label} {code}"), name, came_at)

    conversation = await conversation_with(FakeModel([]))
    async with host_session(conversation, "/", lambda client, offers: InitializeOutcome((), (), ())) as session:
        late, early = member("late", 2.0), member("early", 1.0)
        async with (
            session.join(late),
            session.join(member("other", 3.0, "page-2")),
            session.join(member("", 4.0, None)),
        ):
            session.keep_latest(early, 4411)
            assert closed == ["early 4411"]
            session.keep_latest(member("last", 5.0), 4411)
            assert closed == ["early 4411", "late 4411"]
