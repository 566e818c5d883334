"""A Python function as a tool: python examples/custom_tool.py (leave out `model` to use that of `kimi setup`)."""

import asyncio

from kimi.interfaces.embed import open_agent, scripted_call, scripted_model


def count_words(text: str) -> int:
    """Count the words of a text."""
    return len(text.split())


async def main() -> None:
    model = scripted_model(scripted_call("count_words", text="to be or not"), "text: It has four words.")
    async with open_agent(model=model, tools=[count_words]) as agent:
        print(await agent.ask("How many words has 'to be or not'?"))


asyncio.run(main())
