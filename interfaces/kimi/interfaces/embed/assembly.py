"""Put together what an agent is made of: the settings, the container with its replaced parts, the open conversation."""

from __future__ import annotations

import json
import math
import os
from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, cast

from kimi.application.conversation.conversation import Conversation
from kimi.application.ports import ChatModel, OpenModel
from kimi.application.sessions.open_session import SessionSelector
from kimi.application.settings.flags import Flags
from kimi.application.settings.settings import ModelSettings, Settings
from kimi.domain.client import Client
from kimi.domain.errors import ConfigError, UnknownSession, UsageError
from kimi.domain.hook import CommandHook
from kimi.interfaces.bootstrap.containers import App, SessionContainer
from kimi.interfaces.bootstrap.injector import providers
from kimi.interfaces.bootstrap.opening import open_conversation, replace_workspace
from kimi.interfaces.bootstrap.start import load_settings
from kimi.interfaces.embed.callbacks import RequestAnswers
from kimi.interfaces.embed.options import AgentOptions, ModelOption
from kimi.interfaces.version import __version__

if TYPE_CHECKING:
    from kimi.application.ports import Tool, Workspace

_FILE_OPTIONS: Final = (
    *("config", "share_dir", "agent", "agent_file", "thinking", "mcp_configs", "skills_dirs", "additional_dirs"),
    *("plan", "sandbox", "slash_commands", "max_steps", "max_attempts", "ralph_iterations"),
)
"""The options that are part of the settings; a caller who gives whole settings says them there."""


@dataclass(slots=True)
class SharedApp:
    """A container that several agents of a process share; the last of them closes its connections."""

    app: App
    users: int = 0


@dataclass(frozen=True, slots=True)
class Assembly:
    """What an agent is made of, before anything is opened."""

    work_dir: str
    model: ModelOption | None
    options: AgentOptions
    answers: RequestAnswers

    def load_app(self) -> SharedApp:
        """Return the container. Reads files. Raises UsageError or ConfigError, which say what to correct."""
        if "workspace" not in self.options and not os.path.isdir(self.work_dir):
            raise UsageError(f"`work_dir` names '{self.work_dir}', which is no directory.")
        settings = _adapt_settings(self._load_settings(), self.model, self.options)
        replaced: dict[str, object] = {}
        if self.model is not None and not isinstance(self.model, str | ModelSettings):
            replaced["open_model"] = providers.Object(_make_model_opener(self.model))
        if (store := self.options.get("store")) is not None:
            replaced["store"] = providers.Object(store)
        return SharedApp(App(settings=providers.Object(settings), **replaced))

    def _load_settings(self) -> Settings:
        options, environ = self.options, dict(os.environ)
        given = options.get("settings")
        if given is None:
            if (share := options.get("share_dir")) is not None:
                environ["KIMI_SHARE_DIR"] = os.path.abspath(share)
            return load_settings(_build_flags(self.work_dir, self.model, options), environ)
        if unused := [name for name in _FILE_OPTIONS if name in options]:
            raise UsageError(f"Say {', '.join(unused)} in `settings`, or leave `settings` out.")
        if isinstance(self.model, str):
            if self.model not in given.models:
                raise ConfigError(f"The settings have no model '{self.model}': add it to `models`, or name another.")
            given = given.model_copy(update={"model": given.models[self.model], "is_model_requested": True})
        return given

    @asynccontextmanager
    async def open(self, shared: SharedApp, session: str | None) -> AsyncGenerator[Conversation, None]:
        """Open the conversation of a session. Raises what `open_agent` says.

        None selects that of the options, an empty text a new one.
        """
        options = self.options
        chosen = options.get("session") if session is None else session or None
        if options.get("must_exist") and chosen is not None:
            await _check_session(shared.app, chosen)
        selector = SessionSelector(chosen, last=session is None and options.get("continue_last", False))
        shared.users += 1
        try:
            opening = open_conversation(
                shared.app,
                selector,
                time_left=lambda: math.inf,
                adapt_container=partial(_adapt_container, options.get("workspace")),
                close_http=False,
            )
            async with opening as conversation:
                self._introduce(shared.app, conversation)
                yield conversation
        finally:
            shared.users -= 1
            if not shared.users:
                await shared.app.http().close()

    def _introduce(self, app: App, conversation: Conversation) -> None:
        """Tell the conversation who reads its events, which tools it brings, and what it wants to hear of."""
        from kimi.application.sessions.negotiate_initialize import set_client

        can_ask = self.answers.can_ask
        client = Client(
            "kimi-embed",
            __version__,
            (1, 10),
            supports_question=can_ask,
            supports_plan_mode=can_ask,
            supports_usage=True,
        )
        set_client(conversation, client)
        for tool in _make_tools(app, self.options):
            if (reason := conversation.toolset.add_external(tool)) is not None:
                raise ConfigError(f"The tool '{tool.spec.name}' cannot be added: {reason}. Give it another name.")
        if subscriptions := self.answers.subscriptions():
            conversation.resources.hooks.subscribe(subscriptions)


def _adapt_container(workspace: Workspace | None, container: SessionContainer) -> None:
    if workspace is not None:
        replace_workspace(container, workspace)


async def _check_session(app: App, session_id: str) -> None:
    files = await app.store().open(session_id)
    if files is None:
        raise UnknownSession(f"There is no session '{session_id}' of this work directory.")
    files.close()


def _make_model_opener(model: ChatModel | OpenModel) -> OpenModel:
    if hasattr(model, "stream"):
        return lambda session_id, client: cast("ChatModel", model)
    return cast("OpenModel", model)


def _make_tools(app: App, options: AgentOptions) -> Sequence[Tool]:
    from kimi.interfaces.embed.function_tool import FunctionTool

    made: dict[str, Tool] = {}
    for given in options.get("tools", ()):
        tool = cast("Tool", given) if hasattr(given, "prepare") else FunctionTool.of(cast("Any", given))
        if (fault := app.check_schema()(tool.spec.parameters)) is not None:
            raise ConfigError(f"The parameters of the tool '{tool.spec.name}' are no valid JSON Schema: {fault}")
        if made.setdefault(tool.spec.name, tool) is not tool:
            raise ConfigError(f"Two tools are called '{tool.spec.name}'. Give one of them another name.")
    return list(made.values())


def _adapt_settings(settings: Settings, model: ModelOption | None, options: AgentOptions) -> Settings:
    changed: dict[str, Any] = {}
    if isinstance(model, ModelSettings):
        changed |= {"model": model, "is_model_requested": True}
    if options.get("approve") == "all":
        changed["yolo"] = True
    if commands := tuple(hook for hook in options.get("hooks", ()) if isinstance(hook, CommandHook)):
        changed["hooks"] = (*settings.hooks, *commands)
    return settings.model_copy(update=changed) if changed else settings


def _build_flags(work_dir: str, model: ModelOption | None, options: AgentOptions) -> Flags:
    """Return the options as those of a command line: what they mean stands there."""
    flags = Flags(
        work_dir,
        ui="wire",
        add_dirs=_absolute(options.get("additional_dirs", ())),
        model=model if isinstance(model, str) else None,
        thinking=options.get("thinking"),
        plan=options.get("plan", False),
        sandbox=options.get("sandbox"),
        no_slash_commands=not options.get("slash_commands", True),
        agent=options.get("agent"),
        skills_dirs=_absolute(options.get("skills_dirs", ())),
        max_steps_per_turn=options.get("max_steps"),
        max_retries_per_step=options.get("max_attempts"),
        max_ralph_iterations=options.get("ralph_iterations"),
    )
    config, agent_file = options.get("config"), options.get("agent_file")
    if isinstance(config, Path):
        flags = replace(flags, config_file=_existing_file(config, "config"))
    elif config is not None:
        flags = replace(flags, config=config)
    if agent_file is not None:
        flags = replace(flags, agent_file=_existing_file(agent_file, "agent_file"))
    return _add_servers(flags, options.get("mcp_configs", ()))


def _add_servers(flags: Flags, configs: Sequence[str | Path | Mapping[str, Any]]) -> Flags:
    files = tuple(_existing_file(one, "mcp_configs") for one in configs if isinstance(one, Path))
    texts = tuple(
        one if isinstance(one, str) else json.dumps(dict(one)) for one in configs if not isinstance(one, Path)
    )
    return replace(flags, mcp_config_files=files, mcp_configs=texts)


def _existing_file(path: str | Path, option: str) -> str:
    found = os.path.abspath(os.path.expanduser(path))
    if not os.path.isfile(found):
        raise UsageError(f"`{option}` names '{found}', which is no file.")
    return found


def _absolute(paths: Sequence[str | Path]) -> tuple[str, ...]:
    return tuple(os.path.abspath(os.path.expanduser(path)) for path in paths)
