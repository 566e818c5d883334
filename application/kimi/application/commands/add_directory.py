"""`/add-dir [path]`: add a directory to the workspace of the session (runtime spec 7.2)."""

from __future__ import annotations

from dataclasses import replace

import anyio.to_thread

from kimi.application.conversation.conversation import Conversation
from kimi.application.conversation.project import Project, parse_path_argument
from kimi.domain.content.message import user_message
from kimi.domain.content.parts import TextPart
from kimi.domain.permissions.path_rules import is_own_file, is_within
from kimi.domain.tools.tool import escape_host_tags


async def add_directory(conversation: Conversation, arguments: str) -> None:
    """Without arguments, list the directories of the workspace; else add one.

    The directory is stored with the session and announced to the model. Raises StoreFailed.
    """
    project = conversation.resources.require_project()
    if arguments:
        text = await _add_to_workspace(conversation, project, parse_path_argument(arguments))
    else:
        lines = [project.workspace.work_dir, *conversation.files.state.additional_dirs]
        text = "Workspace directories:\n" + "\n".join(f"- {path}" for path in lines)
    await conversation.events.emit(TextPart(text))


async def _add_to_workspace(conversation: Conversation, project: Project, requested_path: str) -> str:
    located = await project.locate(requested_path)
    if (reason := await _find_directory_problem(project, located.absolute, located.real)) is not None:
        return reason
    path = located.absolute
    tree = await anyio.to_thread.run_sync(project.list_tree, path)
    conversation.session.update_state(lambda state: replace(state, additional_dirs=(*state.additional_dirs, path)))
    conversation.context.ensure_system_prompt()
    conversation.context.append(user_message(_format_model_notice(path, tree)))
    return f"Added directory to workspace: {path}"


async def _find_directory_problem(project: Project, path: str, real: str) -> str | None:
    try:
        found = await project.workspace.stat(path)
    except (OSError, ValueError) as error:
        return f"The directory cannot be used: {path}: {error}"
    if found is None:
        return f"The directory does not exist: {path}"
    if found.kind != "directory":
        return f"This is not a directory: {path}"
    scopes = await project.load_path_scopes()
    if is_own_file(path, scopes) or is_own_file(real, scopes):
        return f"Files of this program are not added to the workspace: {path}"
    roots = scopes.workspace
    if path in roots or real in roots:
        return f"The directory is part of the workspace already: {path}"
    if is_within(real, roots):
        return f"The directory is inside a directory of the workspace already: {path}"
    return None


def _format_model_notice(path: str, tree: str) -> str:
    listing = tree or "(empty)"
    shown = escape_host_tags(path)
    return f"<system>The person has added the directory `{shown}` to the workspace. It holds:\n\n{listing}\n</system>"
