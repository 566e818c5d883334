"""A chat bot that passes on approvals: each user has a session, and answers the agent's questions in the chat.

    python examples/chat_bot.py 8099        # then: nc 127.0.0.1 8099, say a name, then prompts

The chat here is lines over TCP; in place of `Chat` put your messenger. A user who comes back goes on with the session.
While the agent works, a line is added to its turn, and /stop ends it.
"""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path

from kimi.interfaces.embed import (
    Agent,
    ApprovalAnswer,
    ApprovalRequest,
    KimiError,
    ModelSettings,
    StateError,
    ToolCall,
    open_agent,
)
from kimi.interfaces.embed.models import ChatModel

YES = {"yes": "approve", "y": "approve", "always": "approve_for_session"}


class Chat:
    """One user's connection: lines in, lines out."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer
        self._answer: asyncio.Future[str] | None = None

    async def say(self, text: str) -> None:
        """Send a message."""
        self._writer.write(f"{text}\n".encode())
        await self._writer.drain()

    async def read(self) -> str | None:
        """Return the next message that is no answer to `ask`; None when the user has gone."""
        while line := await self._reader.readline():
            text = line.decode("utf-8", "replace").strip()
            if self._answer is not None and not self._answer.done() and text != "/stop":
                self._answer.set_result(text)
            elif text:
                return text
        return None

    async def ask(self, question: str) -> str:
        """Ask the user and return the next message."""
        self._answer = asyncio.get_running_loop().create_future()
        await self.say(question)
        return await self._answer


async def approve(chat: Chat, request: ApprovalRequest) -> ApprovalAnswer:
    """Pass a question of the agent on to the user."""
    answer = await chat.ask(f"? {request.description} (yes, always, or why not)")
    match YES.get(answer.lower()):
        case "approve":
            return ApprovalAnswer("approve")
        case "approve_for_session":
            return ApprovalAnswer("approve_for_session")
        case _:
            return ApprovalAnswer("reject", answer)


async def run_prompts(chat: Chat, agent: Agent, prompts: asyncio.Queue[str]) -> None:
    """Run a turn for each prompt, one at a time."""
    while True:
        await run_prompt(chat, agent, await prompts.get())


async def run_prompt(chat: Chat, agent: Agent, text: str) -> None:
    """Run a turn and say what comes of it, a message a step."""
    turn = agent.prompt(text)
    try:
        async for event in turn:
            if isinstance(event, ToolCall):
                if turn.text:
                    await chat.say(turn.text)
                await chat.say(f"* {event.function.name}")
        await chat.say(turn.text or "(nothing to say)")
    except KimiError as error:
        await chat.say(f"! {error}")


async def serve_user(chat: Chat, directory: Path, model: ChatModel | ModelSettings | None) -> None:
    """Serve one user until the connection ends."""
    name = await chat.read()
    if name is None:
        return
    prompts: asyncio.Queue[str] = asyncio.Queue()
    agent = open_agent(
        directory,
        model,
        session=f"chat:{name}",
        approve=lambda request: approve(chat, request),
        slash_commands=False,  # users of a chat do not command the program
    )
    try:
        async with agent, asyncio.TaskGroup() as tasks:
            await chat.say(f"Hello {name}.")
            running = tasks.create_task(run_prompts(chat, agent, prompts))
            while (text := await chat.read()) is not None:
                handle_message(text, agent, prompts)
            running.cancel()  # and the turn with it: nobody is there to answer its questions
    except KimiError as error:
        await chat.say(f"! {error}")


def handle_message(text: str, agent: Agent, prompts: asyncio.Queue[str]) -> None:
    """Add a message to the running turn, stop that, or keep the message for the next turn."""
    if text == "/stop":
        agent.cancel()
        return
    try:
        agent.steer(text)
    except StateError:
        prompts.put_nowait(text)


async def serve(port: int, directory: Path, model: ChatModel | ModelSettings | None = None) -> asyncio.Server:
    """Start the bot; return its server."""

    async def connected(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            await serve_user(Chat(reader, writer), directory, model)
        except ConnectionError:
            pass
        finally:
            writer.close()

    return await asyncio.start_server(connected, "127.0.0.1", port)


async def main(port: int) -> None:
    async with await serve(port, Path.cwd()) as server:
        await server.serve_forever()


if __name__ == "__main__":
    asyncio.run(main(int(sys.argv[1])))
