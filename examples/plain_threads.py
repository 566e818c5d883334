"""Agents in plain threads, without async: python examples/plain_threads.py FILE...

Each thread asks an agent of its own about one file. Here each has a scripted model; leave it out to use yours.
"""

from __future__ import annotations

import sys
from concurrent.futures import ThreadPoolExecutor

from kimi.interfaces.embed import TextPart, ToolResult, open_agent_sync, scripted_call, scripted_model


def summarise(path: str) -> str:
    """Return what an agent says of a file."""
    model = scripted_model(scripted_call("ReadFile", path=path), "text: I have read it.")
    said: list[str] = []
    with open_agent_sync(".", model) as agent:
        for event in agent.prompt(f"Summarise {path} in a sentence."):
            if isinstance(event, TextPart):
                said.append(event.text)
            elif isinstance(event, ToolResult) and event.return_value.is_error:
                return f"{path}: {event.return_value.message}"  # leaving the loop ends the turn
    return f"{path}: {''.join(said)}"


def main(paths: list[str]) -> None:
    with ThreadPoolExecutor(4) as pool:
        for line in pool.map(summarise, paths):
            print(line)


if __name__ == "__main__":
    main(sys.argv[1:])
