"""`/export [path]`: write the conversation to a Markdown file (runtime spec 7.2)."""

from __future__ import annotations

import os
from datetime import datetime

from kimi.application.conversation.conversation import Conversation
from kimi.application.conversation.project import Project, parse_path_argument
from kimi.domain.content.parts import TextPart
from kimi.domain.history.transcript import render_transcript


async def export_markdown(conversation: Conversation, arguments: str) -> None:
    """Write the history to a new file; without a path, to a file in the work directory."""
    project = conversation.resources.require_project()
    messages = tuple(conversation.history.messages)
    if not messages:
        await conversation.events.emit(TextPart("There is nothing to export: the conversation is empty."))
        return
    now = datetime.fromtimestamp(conversation.resources.now())
    facts = [
        ("session", conversation.id),
        ("exported", now.astimezone().isoformat(timespec="seconds")),
        ("work_dir", project.workspace.work_dir),
        ("messages", str(len(messages))),
    ]
    name = f"kimi-export-{conversation.id[:8]}-{now:%Y%m%d-%H%M%S}.md"
    content = render_transcript(messages, facts).encode("utf-8", "replace")
    try:
        text = await _write_file(project, parse_path_argument(arguments), name, content)
    except (OSError, ValueError) as error:
        text = f"The conversation could not be exported: {error}"
    await conversation.events.emit(TextPart(text))


async def _write_file(project: Project, requested_path: str, default_name: str, content: bytes) -> str:
    """Write the file and return a message for the user. Existing files are not overwritten.

    If the path is a directory, a file named `default_name` is written into it.
    """
    located = await project.locate(requested_path or default_name)
    found = await project.workspace.stat(located.real)
    if found is not None and found.kind == "directory":
        located = await project.locate(os.path.join(located.absolute, default_name))
        found = await project.workspace.stat(located.real)
    if found is not None:
        return f"There is a file already, name another one: {located.absolute}"
    await project.workspace.write(located.real, content, None)
    return f"The conversation has been exported to {located.absolute}"
