"""Turns of several steps that are broken off at any moment, and what must be there afterwards."""

from __future__ import annotations

import json
import random
import re
import time
from collections.abc import Generator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from tests.support.program.disk_faults import HAPPENED, VARIABLE
from tests.support.program.wire_process import Place, WireProcess
from tests.support.providers.loopback import loopback
from tests.support.providers.provider_server import (
    ProviderServer,
    Recorded,
    Reply,
    call_events,
    end_events,
    text_events,
    text_reply,
)
from tests.support.providers.strict import Json, strictly, text_of

FRESH_EVERY = 4
"""Every so many moments a session is killed in its first turn, which makes all its files."""
LINES_OF_A_TURN = 66
STEP_WITH_SUBAGENT = 1
STEPS = 3


def tool_calls(number: int, step: int) -> list[tuple[str, str, str]]:
    """Calls of a step: two commands that leave a trace, a read in between, and in one step a subagent."""
    names = [f"{number}-{step}-{index}" for index in range(3)]
    shell = [
        ("Shell", {"command": f"echo x > trace-{name}; {pause} echo out-{name}; seq 20"})
        for name, pause in ((names[0], ""), (names[2], "sleep 0.02;"))
    ]
    read = ("ReadFile", {"path": "known.txt"})
    calls = [
        (name, tool, json.dumps(arguments))
        for name, (tool, arguments) in zip(names, (shell[0], read, shell[1]), strict=True)
    ]
    if step == STEP_WITH_SUBAGENT:
        explore = {"description": "look", "prompt": f"sub {number};", "subagent_type": "coder"}
        calls.append((f"{number}-{step}-3", "Agent", json.dumps(explore)))
    return calls


def speak(request: Recorded) -> Reply:
    """What the model says; it is found out from the history alone, so any process can go on with it."""
    messages: list[Json] = request.json["messages"]
    last = max(index for index, message in enumerate(messages) if message["role"] == "user")
    kind, number = re.findall(r"(run|check|sub) (\d+);", text_of(messages[last]))[-1]
    if kind == "check":
        return text_reply(f"checked {number}")
    step = sum(message["role"] == "assistant" for message in messages[last:])
    if kind == "sub":
        return speak_as_subagent(number, step)
    if step == STEPS:
        return text_reply(f"end of {number}", " and ", "out", event_delay_s=0.001)
    events = text_events(f"text-{number}", f"-{step}")
    for index, call in enumerate(tool_calls(int(number), step)):
        events += call_events(index, *call, piece=40)
    return Reply([*events, *end_events("tool_calls")], event_delay_s=0.001)


def speak_as_subagent(number: str, step: int) -> Reply:
    """What the model says in the subagent: a command that leaves a trace, then a report that is long enough."""
    if step == 0:
        command = {"command": f"echo x > sub-trace-{number}; seq 5"}
        return Reply([*call_events(0, f"{number}-sub", "Shell", json.dumps(command)), *end_events("tool_calls")])
    return text_reply(f"subagent of {number} ", "has looked at all of it. " * 12, event_delay_s=0.001)


@dataclass
class Victim:
    """What a client saw of a turn before the process was killed, and what the log held then."""

    number: int
    seen: list[Json]
    logged: list[Json]

    @property
    def told(self) -> list[Json]:
        """The events that were seen."""
        return [line["params"] for line in self.seen if line.get("method") == "event"]

    def results(self) -> dict[str, Json]:
        """The results that were seen, by call id."""
        payloads = [event["payload"] for event in self.told if event["type"] == "ToolResult"]
        return {payload["tool_call_id"]: payload["return_value"] for payload in payloads}

    def finished_texts(self) -> list[str]:
        """The texts of the model calls whose end was seen."""
        ended = sum(event["type"] == "StatusUpdate" for event in self.told)
        return [f"text-{self.number}-{step}" if step < STEPS else f"end of {self.number}" for step in range(ended)]


@dataclass
class Chain:
    """A row of moments that one worker goes through, in a place of its own."""

    place: Place
    server: ProviderServer
    dice: random.Random
    open: ExitStack = field(default_factory=ExitStack)
    session: str = ""

    def go(self, numbers: list[int]) -> None:
        """Kill and check at each moment."""
        kimi: WireProcess | None = None
        for index, number in enumerate(numbers):
            if kimi is None or index % FRESH_EVERY == 0:
                self.open.close()
                self.session = f"s{number}"
                kimi = self.started()
            victim = self.killed(kimi, number)
            kimi = self.started()
            self.check(kimi, victim)
        self.open.close()

    def started(self) -> WireProcess:
        """A process on the session of the chain."""
        return self.open.enter_context(self.place.wire("--yolo", "--session", self.session))

    def killed(self, kimi: WireProcess, number: int) -> Victim:
        """Begin a turn and kill the process somewhere in it."""
        before = len(kimi.raw)
        wanted, later = self.dice.randrange(LINES_OF_A_TURN), self.dice.random() ** 3 * 0.03
        call_id = kimi.call("prompt", {"user_input": f"run {number};"})
        for _ in range(wanted):
            if kimi.next_line().get("id") == call_id:
                break
        time.sleep(later)
        kimi.close()
        whole = [line for line in kimi.raw[before:] if line.endswith(b"\n")]
        return Victim(number, [json.loads(line) for line in whole], self.logged(number))

    def failed(self, number: int, fault: str) -> bool:
        """Run a turn on a disk that fails and check what is left of it; return whether anything failed at all."""
        self.session = f"s{number}"
        happened = self.place.root / HAPPENED
        self.place.environ[VARIABLE] = f"{fault}:{self.place.share}"
        kimi = self.started()
        del self.place.environ[VARIABLE]
        kimi.prompt(f"run {number};")
        kimi.end_input()
        kimi.rest()
        assert kimi.wait() in (0, 1), (kimi.process.returncode, kimi.stderr, kimi.lines[-2:], fault)
        assert b"Traceback" not in kimi.stderr
        whole = [json.loads(line) for line in kimi.raw if line.endswith(b"\n")]
        self.check(self.started(), Victim(number, whole, self.logged(number)))
        self.open.close()
        failed = happened.exists()
        happened.unlink(missing_ok=True)
        return failed

    def logged(self, number: int) -> list[Json]:
        """The messages of the turn in the log; only its very last line may be torn."""
        path = next(self.place.share.glob(f"sessions/*/{self.session}"), Path("nowhere")) / "wire.jsonl"
        *lines, torn = path.read_bytes().split(b"\n") if path.exists() else [b""]
        assert not torn or b"\n" not in torn
        records = [json.loads(line) for line in lines]
        messages = [record["message"] for record in records if "message" in record]
        messages = [message for message in messages if message["type"] != "SubagentEvent"]
        begun = {"type": "TurnBegin", "payload": {"user_input": f"run {number};"}}
        return messages[messages.index(begun) :] if begun in messages else []

    def sent_with(self, prompt: str) -> list[Json]:
        """Return the messages of the one request that ends with this prompt."""
        (request,) = [one for one in self.server.requests if one.body.rfind(prompt.encode()) > 0]
        self.server.requests.remove(request)
        return request.json["messages"]

    def check(self, kimi: WireProcess, victim: Victim) -> None:
        """A new process runs a turn on what is there; the provider would refuse an open or orphaned call."""
        asked = f"check {victim.number};"
        assert kimi.prompt(asked).get("result") == {"status": "finished"}, (victim.number, kimi.lines[-3:])
        messages = self.sent_with(asked)
        answers = {one["tool_call_id"]: text_of(one) for one in messages if one["role"] == "tool"}
        for call_id, result in victim.results().items():
            # What comes back from the event log has its host tags neutralised: whose text it is is not known there.
            # The text of a file stands between the tags of a mark.
            kept = re.sub(r"<file-text-\w+>\n|</file-text-\w+>", "", answers[call_id]).replace("&lt;", "<")
            assert result["output"] in kept, f"the result of {call_id} is lost"
        texts = [text_of(one) for one in messages if one["role"] == "assistant"]
        for text in victim.finished_texts():
            assert any(one.startswith(text) for one in texts), f"{text!r} is lost"
        if any(event["type"] == "StepBegin" for event in victim.told):
            assert any(f"run {victim.number};" in text_of(one) for one in messages if one["role"] == "user")
        for trace in self.place.work.glob(f"trace-{victim.number}-*"):
            assert trace.name.removeprefix("trace-") in answers, f"{trace.name} was made by a call that is lost"
        expected = merged([event for event in victim.told if event["type"] != "SubagentEvent"])
        assert victim.logged[: len(expected)] == expected


def merged(told: list[Json]) -> list[Json]:
    """Events as the log holds them: consecutive parts made one; parts that nothing followed may be missing."""
    found: list[Json] = []
    whole = 0
    for event in told:
        kind, payload = event["type"], event["payload"]
        before = found[-1] if found else None
        if kind == "ToolCallPart":
            assert before is not None
            before["payload"]["function"]["arguments"] += payload["arguments_part"]
        elif kind == "ContentPart" and before is not None and before["type"] == "ContentPart":
            before["payload"]["text"] += payload["text"]
        else:
            whole = len(found)
            found.append(json.loads(json.dumps(event)))
        if kind not in ("ContentPart", "ToolCall", "ToolCallPart"):
            whole = len(found)
    return found[:whole]


@contextmanager
def chains(root: Path, count: int) -> Generator[list[Chain], None, None]:
    """A chain for each worker, all with one provider."""
    with loopback() as server, ExitStack() as at_end:
        server.choose = strictly(speak)
        made: list[Chain] = []
        for number in range(count):
            place = Place(root / str(number)).provider(server.base_url)
            (place.work / "known.txt").write_text("known\n")
            made.append(Chain(place, server, random.Random(number)))
            at_end.callback(made[-1].open.close)
        yield made
