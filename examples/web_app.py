"""A web application: sessions over HTTP, events as server-sent events (`pip install fastapi uvicorn`).

    python examples/web_app.py 8098
    curl -X POST 127.0.0.1:8098/sessions                                       # {"id": "..."}
    curl -N 127.0.0.1:8098/sessions/ID/prompt -d '{"text": "What is here?"}' -H 'content-type: application/json'
    curl 127.0.0.1:8098/sessions/ID/approvals/REQUEST -d '{"response": "approve"}' -H 'content-type: application/json'

A browser that goes away in the middle of a stream cancels its turn. Put it behind your own login: whoever can reach it
uses the agent.
"""

from __future__ import annotations

import sys
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Literal

import uvicorn
from fastapi import FastAPI, HTTPException
from fastapi.responses import StreamingResponse
from pydantic import BaseModel

from kimi.interfaces.embed import Agent, ApprovalRequest, ChatModel, KimiError, encode_event, open_agent


class Prompt(BaseModel):
    """What the user says."""

    text: str


class Verdict(BaseModel):
    """What the user answers to a question for approval."""

    response: Literal["approve", "approve_for_session", "reject"]


class LiveSession:
    """An agent and the questions that it waits for."""

    def __init__(self, agent: Agent) -> None:
        self.agent = agent
        self.questions: dict[str, ApprovalRequest] = {}

    async def stream(self, text: str) -> AsyncGenerator[bytes, None]:
        """Yield the events of a turn as server-sent events, and an `error` or `end` as the last one."""
        turn = self.agent.prompt(text)
        asked: list[str] = []
        try:
            async for event in turn:
                if isinstance(event, ApprovalRequest):
                    self.questions[event.id] = event
                    asked.append(event.id)
                yield b"data: " + encode_event(event) + b"\n\n"
            status = turn.status.status if turn.status else "cancelled"
            yield f"event: end\ndata: {status}\n\n".encode()
        except KimiError as error:
            yield f"event: error\ndata: {' '.join(str(error).split())}\n\n".encode()
        finally:
            for request_id in asked:
                self.questions.pop(request_id, None)
            await turn.close()


def create_app(directory: Path, model: ChatModel | None = None) -> FastAPI:
    """Return the application; its sessions work in `directory`."""
    sessions: dict[str, LiveSession] = {}

    @asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncGenerator[None, None]:
        yield
        for session in sessions.values():
            await session.agent.close()

    app = FastAPI(lifespan=lifespan)

    def find(session_id: str) -> LiveSession:
        if session_id not in sessions:
            raise HTTPException(404, "There is no such session; POST /sessions opens one.")
        return sessions[session_id]

    @app.post("/sessions")
    async def create_session() -> dict[str, str]:
        agent = await open_agent(directory, model, approve="events", slash_commands=False).open()
        sessions[agent.session_id] = LiveSession(agent)
        return {"id": agent.session_id}

    @app.post("/sessions/{session_id}/prompt")
    async def run_prompt(session_id: str, prompt: Prompt) -> StreamingResponse:
        return StreamingResponse(find(session_id).stream(prompt.text), media_type="text/event-stream")

    @app.post("/sessions/{session_id}/approvals/{request_id}")
    async def answer(session_id: str, request_id: str, verdict: Verdict) -> dict[str, bool]:
        session = find(session_id)
        question = session.questions.pop(request_id, None)
        return {"resolved": question is not None and session.agent.resolve(question, verdict.response)}

    @app.delete("/sessions/{session_id}")
    async def close_session(session_id: str) -> None:
        session = find(session_id)
        del sessions[session_id]
        await session.agent.close()

    return app


if __name__ == "__main__":
    uvicorn.run(create_app(Path.cwd()), host="127.0.0.1", port=int(sys.argv[1]))
