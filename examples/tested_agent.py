"""An agent with its tests, which need no network, no key and no waiting: pytest examples/tested_agent.py

The scripted model says what a real one might; the tests check what the program around it does.
"""

from __future__ import annotations

import asyncio
from pathlib import Path

from kimi.interfaces.embed import ApprovalRequest, ChatModel, DiffBlock, open_agent, scripted_call, scripted_model

# --- the program --------------------------------------------------------------------------------------------------

ALLOWED = ("NOTES.md", "CHANGELOG.md")


def approve(request: ApprovalRequest, directory: Path) -> bool:
    """Allow changes of a few files, and no commands. What is shown is what would happen; a text may name anything."""
    changed = {Path(block.path) for block in request.display if isinstance(block, DiffBlock)}
    return bool(changed) and changed <= {directory.resolve() / name for name in ALLOWED}


async def write_notes(directory: Path, model: ChatModel | None = None) -> str:
    """Let the agent write release notes; return what it says."""
    async with open_agent(
        directory, model, approve=lambda request: approve(request, directory), share_dir=directory / ".share"
    ) as agent:
        return await agent.ask("Write release notes into NOTES.md.")


# --- its tests ----------------------------------------------------------------------------------------------------


def test_notes_are_written(tmp_path: Path) -> None:
    model = scripted_model(scripted_call("WriteFile", path="NOTES.md", content="# 1.0\n"), "text: Written.")
    assert asyncio.run(write_notes(tmp_path, model)) == "Written."
    assert (tmp_path / "NOTES.md").read_text() == "# 1.0\n"


def test_other_files_and_commands_are_refused(tmp_path: Path) -> None:
    calls = [scripted_call("WriteFile", path=path, content="") for path in ("other.py", "NOTES.md.py", "NOTES.md/x")]
    for call in (*calls, scripted_call("Shell", command="touch NOTES.md")):
        asyncio.run(write_notes(tmp_path, scripted_model(call)))
    assert not list(tmp_path.glob("[!.]*"))
