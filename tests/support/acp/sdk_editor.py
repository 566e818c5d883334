"""An editor built on the protocol's own library, with the agent in one process or as a real `kimi acp` process.

Every message of the agent is checked against the protocol's schema when it arrives.
"""

from __future__ import annotations

import json
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any, Literal, TypeAlias

import acp
import anyio
from acp import schema
from acp.client.connection import ClientSideConnection
from acp.connection import StreamDirection, StreamEvent
from anyio.streams.memory import MemoryObjectReceiveStream, MemoryObjectSendStream

from kimi.application.settings.flags import Flags
from kimi.interfaces.acp.run import AcpServer
from kimi.interfaces.acp.transport.update_outbox import UpdateOutbox
from kimi.interfaces.bootstrap.containers import App
from kimi.interfaces.bootstrap.injector import providers
from kimi.interfaces.bootstrap.start import load_settings
from tests.support.acp.editor import Editor, Refusal
from tests.support.acp.schema import AgentLines
from tests.support.program.program import kimi_command
from tests.support.program.wire_process import Json, Place

Where: TypeAlias = Literal["in process", "a process"]
Choose: TypeAlias = Callable[[Json], Awaitable[str | None]]
"""Returns the chosen option for a permission request; None dismisses it."""

PATIENCE_S = 30.0

ALL_ABILITIES: Json = {
    "fs": {"readTextFile": True, "writeTextFile": True},
    "terminal": True,
    "auth": {"terminal": True},
    "elicitation": {"form": {}},
    "session": {"configOptions": {"boolean": {}}},
}


async def first_option(request: Json) -> str:
    """Choose the first option, which allows once."""
    return request["options"][0]["optionId"]


async def nothing(method: str) -> None:
    """Do nothing."""


@dataclass
class SdkEditor:
    """The editor that the library calls. `updates` holds (session id, update), `asked` the permission requests."""

    desk: Editor = field(default_factory=Editor)
    choose: Choose = first_option
    before: Callable[[str], Awaitable[None]] = nothing
    """Called before a call for a file or terminal is answered."""
    form: Json | None = field(default_factory=dict[str, Any])
    """The content for a form; None declines it."""
    updates: list[tuple[str, Json]] = field(default_factory=list[tuple[str, Json]])
    asked: list[Json] = field(default_factory=list[Json])
    forms: list[Json] = field(default_factory=list[Json])
    news: anyio.Event = field(default_factory=anyio.Event)

    def on_connect(self, conn: Any) -> None:
        """See the library's `Client`."""

    async def session_update(self, session_id: str, update: Any, **kwargs: Any) -> None:
        """See the library's `Client`."""
        self.updates.append((session_id, _plain(update)))
        self.news.set()
        self.news = anyio.Event()

    async def request_permission(
        self, session_id: str, tool_call: Any, options: list[Any], **kwargs: Any
    ) -> schema.RequestPermissionResponse:
        """See the library's `Client`."""
        request: Json = {"sessionId": session_id, "toolCall": _plain(tool_call), "options": list(map(_plain, options))}
        self.asked.append(request)
        chosen = await self.choose(request)
        if chosen is None:
            return schema.RequestPermissionResponse(outcome=schema.DeniedOutcome(outcome="cancelled"))
        return schema.RequestPermissionResponse(outcome=schema.AllowedOutcome(outcome="selected", option_id=chosen))

    async def create_elicitation(self, message: str, mode: Any, **kwargs: Any) -> Any:
        """See the library's `Client`."""
        self.forms.append({"message": message, **_plain(mode)})
        if self.form is None:
            return schema.DeclineElicitationResponse(action="decline")
        return schema.AcceptElicitationResponse(action="accept", content=self.form)

    async def read_text_file(self, **params: Any) -> schema.ReadTextFileResponse:
        """See the library's `Client`."""
        return schema.ReadTextFileResponse.model_validate(await self._at_desk("fs/read_text_file", params))

    async def write_text_file(self, **params: Any) -> schema.WriteTextFileResponse:
        """See the library's `Client`."""
        return schema.WriteTextFileResponse.model_validate(await self._at_desk("fs/write_text_file", params))

    async def create_terminal(self, **params: Any) -> schema.CreateTerminalResponse:
        """See the library's `Client`."""
        params["env"] = [_plain(one) for one in params.get("env") or ()]
        return schema.CreateTerminalResponse.model_validate(await self._at_desk("terminal/create", params))

    async def terminal_output(self, **params: Any) -> schema.TerminalOutputResponse:
        """See the library's `Client`."""
        return schema.TerminalOutputResponse.model_validate(await self._at_desk("terminal/output", params))

    async def wait_for_terminal_exit(self, **params: Any) -> schema.WaitForTerminalExitResponse:
        """See the library's `Client`."""
        return schema.WaitForTerminalExitResponse.model_validate(await self._at_desk("terminal/wait_for_exit", params))

    async def kill_terminal(self, **params: Any) -> schema.KillTerminalResponse:
        """See the library's `Client`."""
        return schema.KillTerminalResponse.model_validate(await self._at_desk("terminal/kill", params))

    async def release_terminal(self, **params: Any) -> schema.ReleaseTerminalResponse:
        """See the library's `Client`."""
        return schema.ReleaseTerminalResponse.model_validate(await self._at_desk("terminal/release", params))

    async def _at_desk(self, method: str, params: Json) -> Json:
        await self.before(method)
        try:
            return dict(await self.desk(method, {_camel(name): value for name, value in params.items()}))
        except Refusal as error:
            raise acp.RequestError(-32603, str(error)) from error

    # --- received messages ------------------------------------------------------------------------------------

    def of(self, kind: str, session_id: str | None = None) -> list[Json]:
        """Return the updates of a kind, in order."""
        return [one for at, one in self.updates if one["sessionUpdate"] == kind and session_id in (None, at)]

    def kinds(self) -> set[str]:
        """Return the kinds of the updates that arrived."""
        return {one["sessionUpdate"] for _, one in self.updates}

    def said(self, session_id: str | None = None) -> str:
        """Return all text of the agent."""
        return "".join(one["content"].get("text", "") for one in self.of("agent_message_chunk", session_id))

    def ends(self) -> dict[str, str]:
        """Return the last status of each call, by the model's id of the call."""
        calls = [one for _, one in self.updates if one["sessionUpdate"] in ("tool_call", "tool_call_update")]
        return {one["toolCallId"].rpartition("/")[2]: one["status"] for one in calls if "status" in one}

    async def until(self, found: Callable[[], object]) -> None:
        """Wait until the condition holds after an update."""
        with anyio.fail_after(PATIENCE_S):
            while not found():
                await self.news.wait()


class Agent:
    """The library's connection to the agent; `call` is for methods that the library does not define."""

    def __init__(self, connection: ClientSideConnection) -> None:
        self.sdk: Any = connection

    async def hello(self, **abilities: Any) -> Json:
        """Send `initialize`; return the result."""
        info = schema.Implementation(name="sdk-editor", version="1")
        able = schema.ClientCapabilities.model_validate(abilities)
        return _plain(await self.sdk.initialize(protocol_version=1, client_capabilities=able, client_info=info))

    async def new(self, place: Place, **options: Any) -> str:
        """Open a session in the work directory; return its id."""
        return (await self.sdk.new_session(cwd=str(place.work), **{"mcp_servers": [], **options})).session_id

    async def say(self, session_id: str, text: str = "go") -> str:
        """Send a prompt; return its stop reason."""
        answer = await self.sdk.prompt(session_id=session_id, prompt=[acp.text_block(text)])
        return answer.stop_reason

    async def call(self, method: str, params: Json) -> Any:
        """Send any request; return the result unchanged. Raises acp.RequestError."""
        return await self.sdk._conn.send_request(method, params)

    async def tell(self, method: str, params: Json) -> None:
        """Send any notification."""
        await self.sdk._conn.send_notification(method, params)

    async def refusal(self, asked: Awaitable[Any]) -> Json:
        """Return the error of a request that must fail: code, message, data."""
        try:
            answer = await asked
        except acp.RequestError as error:
            return {"code": error.code, "message": str(error), "data": error.data}
        raise AssertionError(f"no error: {answer}")


@asynccontextmanager
async def sdk_agent(where: Where, place: Place, editor: SdkEditor) -> AsyncGenerator[Agent, None]:
    """Start an agent for the configuration of a place, and yield the library's connection to it."""
    check, faults = AgentLines(), list[AssertionError]()

    def look(event: StreamEvent) -> None:
        if event.direction is StreamDirection.OUTGOING:
            check.sent(event.message)
            return
        try:
            check.received(event.message)
        except AssertionError as fault:  # the library would swallow it
            faults.append(fault)

    connecting = _spawned if where == "a process" else _linked
    async with connecting(place, editor, {"observers": [look], "use_unstable_protocol": True}) as connection:
        yield Agent(connection)
    assert not faults, faults


@asynccontextmanager
async def _spawned(place: Place, editor: Any, options: Json) -> AsyncGenerator[ClientSideConnection, None]:
    command, *arguments = kimi_command()
    quiet: Json = {"stderr": None}
    async with acp.spawn_agent_process(
        editor,
        command,
        *arguments,
        "acp",
        env=place.full_environ(),
        cwd=str(place.work),
        transport_kwargs=quiet,
        **options,
    ) as (connection, _):
        yield connection


class _Link:
    """A message transport of the library over two streams of this process."""

    def __init__(self, to_agent: MemoryObjectSendStream[bytes], from_agent: MemoryObjectReceiveStream[bytes]) -> None:
        self._to_agent, self._from_agent = to_agent, from_agent

    async def send(self, message: Json) -> None:
        await self._to_agent.send(json.dumps(message).encode() + b"\n")

    async def receive(self) -> Json | None:
        try:
            return json.loads(await self._from_agent.receive())
        except (anyio.EndOfStream, anyio.ClosedResourceError):
            return None

    async def close(self) -> None:
        """Do nothing: the caller closes the streams."""


@asynccontextmanager
async def _linked(place: Place, editor: Any, options: Json) -> AsyncGenerator[ClientSideConnection, None]:
    environ, flags = place.full_environ(), Flags(work_dir=str(place.work), ui="acp")
    app = App(settings=providers.Object(load_settings(flags, environ)), environ=providers.Object(environ))
    server = AcpServer(flags, app, time_left=lambda: 3.0)
    to_agent, agent_reads = anyio.create_memory_object_stream[bytes](1000)
    agent_writes, from_agent = anyio.create_memory_object_stream[bytes](100_000)

    async def write(data: bytes) -> None:
        for line in data.splitlines():
            agent_writes.send_nowait(line)

    async def serve() -> None:
        with agent_writes:
            await server.serve(agent_reads.receive, UpdateOutbox(write, 1 << 24, lambda: None))

    async with to_agent, agent_reads, from_agent, anyio.create_task_group() as tasks:
        tasks.start_soon(serve)
        connection = ClientSideConnection(editor, _Link(to_agent, from_agent), **options)
        try:
            yield connection
        finally:
            with anyio.CancelScope(shield=True):
                await to_agent.send(b"")
                await connection.close()


def _plain(model: Any) -> Json:
    return model.model_dump(mode="json", by_alias=True, exclude_none=True)


def _camel(name: str) -> str:
    head, *rest = name.split("_")
    return head + "".join(word.capitalize() for word in rest)
