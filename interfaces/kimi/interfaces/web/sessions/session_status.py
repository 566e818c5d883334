"""What a session is set to and what it is doing, as one JSON object; and how a client changes that."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, cast

from kimi.application.codec.envelope import shape_total, shape_usage
from kimi.application.control.approval_modes import MODES, mode_from_policy, switch_mode
from kimi.application.control.mcp_servers import mcp_status
from kimi.application.control.session_title import session_title
from kimi.application.control.switch_model import current_choice, effort_choices, switch_model, thinking_choices
from kimi.application.conversation.conversation import Conversation
from kimi.application.settings.settings import ModelSettings, Settings
from kimi.domain.background import BackgroundTask
from kimi.domain.errors import StateError
from kimi.interfaces.web.refusal import Refusal
from kimi.interfaces.web.sessions.hosted_session import HostedSession

MAX_OUTPUT_BYTES: Final = 8 * 1024
"""How much of the end of a task's output is shown."""

STOPPED_BY_USER: Final = "Stopped by the user."


def describe_models(settings: Settings) -> list[dict[str, object]]:
    """Return the models of the configuration, as far as a client chooses between them."""
    known = dict(settings.models)
    if settings.model is not None and settings.model.is_usable:
        known.setdefault(settings.model.alias, settings.model)
    return [_describe_model(name, model) for name, model in known.items()]


def _describe_model(name: str, model: ModelSettings) -> dict[str, object]:
    return {
        "name": name,
        "model": model.model,
        "thinking": bool(thinking_choices(model)),
        "levels": list(effort_choices(model)),
        "capabilities": sorted(model.capabilities),
    }


def describe_session(hosted: HostedSession) -> dict[str, object]:
    """Return the status of a session that is open here."""
    conversation = hosted.conversation
    policy, choice, model = conversation.policy, _find_choice(conversation), conversation.model
    tokens = conversation.history.total_tokens
    size = None if model is None else model.context_size
    usage = conversation.models.usage.figures
    return {
        "id": conversation.id,
        "title": session_title(conversation) or "",
        "work_dir": hosted.work_dir,
        "state": hosted.state,
        "model": None if choice is None else choice.alias,
        "thinking": choice is not None and choice.thinking,
        "effort": None if choice is None else choice.effort,
        "mode": mode_from_policy(policy),
        "modes": {"plan": policy.plan, "yolo": policy.yolo, "afk": policy.afk, "edits": policy.edits},
        "context_tokens": tokens,
        "max_context_tokens": size,
        "context_usage": tokens / size if size else None,
        "usage": {**shape_total(usage.session), **shape_usage(usage)},
        "mcp": mcp_status(conversation),
        "tasks": [_describe_task(one) for one in _list_tasks(conversation)],
    }


def _find_choice(conversation: Conversation) -> Any:
    try:
        return current_choice(conversation)
    except StateError:
        return None


def change_options(hosted: HostedSession, body: Mapping[str, Any]) -> None:
    """Change model, thinking or mode; what is not named stays. Raises Refusal, StateError, ConfigError, StoreFailed."""
    known: Mapping[str, type] = {"model": str, "thinking": bool, "effort": str, "mode": str}
    for name, value in body.items():
        if name not in known or not isinstance(value, known[name]):
            raise Refusal("invalid", f"`{name}` is no option, or has a wrong type; the options are {', '.join(known)}.")
    mode = body.get("mode")
    if mode is not None and mode not in MODES:
        raise Refusal("invalid", f"There is no mode '{mode}'; the modes are {', '.join(MODES)}.")
    conversation = hosted.conversation
    model, thinking, effort = body.get("model"), body.get("thinking"), body.get("effort")
    if (model, thinking, effort) != (None, None, None):
        switch_model(conversation, model, thinking, effort)
    if mode is not None:
        switch_mode(conversation, cast("Any", mode))
    hosted.announce_change()


def describe_tasks(hosted: HostedSession) -> list[dict[str, object]]:
    """Return the background tasks of a session, newest first, each with the end of its output."""
    tasks = hosted.conversation.resources.background.tasks
    if tasks is None:
        return []
    return [
        {**_describe_task(one), "output": tasks.read_output(one.id, MAX_OUTPUT_BYTES).text}
        for one in tasks.list_tasks()
    ]


def stop_task(hosted: HostedSession, task_id: str) -> None:
    """Ask for the end of a background task. Raises Refusal for an unknown one."""
    tasks = hosted.conversation.resources.background.tasks
    if tasks is None or tasks.find(task_id) is None:
        raise Refusal("unknown", "There is no such background task.")
    tasks.stop(task_id, STOPPED_BY_USER)


def _list_tasks(conversation: Conversation) -> list[BackgroundTask]:
    tasks = conversation.resources.background.tasks
    return [] if tasks is None else list(tasks.list_tasks())


def _describe_task(task: BackgroundTask) -> dict[str, object]:
    return {
        "id": task.id,
        "kind": task.kind,
        "status": task.status,
        "description": task.description,
        "started_at": task.started_at,
        "ended_at": task.ended_at,
        "active": task.is_active,
    }
