"""A CI job: the agent reviews a directory, the job prints the verdict as JSON and says it by its exit status.

    python examples/ci_job.py . "Is every public function documented?"

0: nothing found. 1: findings. 2: no verdict, with the reason on stderr; 75: the same, but another try may help.
Nothing is changed: what needs approval is rejected, as nobody is there.
"""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path

from pydantic import BaseModel

from kimi.interfaces.embed import ChatProviderError, KimiError, open_agent

EXIT_FINDINGS, EXIT_NO_VERDICT, EXIT_TRY_AGAIN = 1, 2, 75


class Finding(BaseModel):
    """Something that is wrong, and where."""

    path: str
    line: int | None = None
    text: str


class Review(BaseModel):
    """The verdict; without findings everything is fine."""

    summary: str
    findings: list[Finding]


async def review(directory: Path, question: str) -> Review:
    """Ask the configured model about a directory."""
    async with open_agent(directory, max_steps=30, slash_commands=False) as agent:
        return await agent.ask(f"Review this directory. {question}", Review)


def main(directory: Path, question: str) -> int:
    try:
        verdict = asyncio.run(review(directory, question))
    except KimiError as error:
        print(f"no verdict: {error}", file=sys.stderr)
        return EXIT_TRY_AGAIN if isinstance(error, ChatProviderError) and error.transient else EXIT_NO_VERDICT
    print(verdict.model_dump_json(indent=2))
    return EXIT_FINDINGS if verdict.findings else 0


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1]), sys.argv[2]))
