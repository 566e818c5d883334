"""Load settings, and open and close a conversation over an `App`: the functions that drivers call."""

from __future__ import annotations

import math
import time
from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import AsyncExitStack, asynccontextmanager, nullcontext
from typing import TYPE_CHECKING, Any, Final, Protocol, cast

from anyio import CancelScope, to_thread

from kimi.application.agents.system_prompt import check_prompts
from kimi.application.conversation.background_tasks import stop_tasks_on_exit, wait_for_tasks_on_exit
from kimi.application.conversation.conversation import Conversation, build_subagent_conversation
from kimi.application.conversation.session import ConversationSession
from kimi.application.hooks.session_hooks import session_hooks_lifespan
from kimi.application.ports import ChatModel, SessionFiles, SessionStore, SubagentFiles, Workspace
from kimi.application.sessions.negotiate_initialize import (
    ExternalToolOffer,
    InitializeOutcome,
    negotiate_initialize,
)
from kimi.application.sessions.open_session import SessionSelector, open_session
from kimi.application.sessions.restore_session import RestoreOptions, restore_session
from kimi.application.settings.settings import Settings
from kimi.interfaces.bootstrap.containers import App, SessionContainer
from kimi.interfaces.bootstrap.injector import providers
from kimi.interfaces.bootstrap.store import build_store
from kimi.interfaces.bootstrap.tools.toolset import find_plugin_directory

if TYPE_CHECKING:
    from kimi.application.toolset.mcp_tools import ServerTools
    from kimi.domain.agents.agent import AgentSpec
    from kimi.domain.agents.subagent import SubagentIdentity
    from kimi.domain.client import Client
    from kimi.domain.tools.plugin import InstalledPlugins


LOCK_WAIT_S: Final = 1.0
"""How long a session that another process holds is waited for: a user looks at a client that shows nothing yet."""


def create_session_container(app: App, files: SessionFiles) -> SessionContainer:
    """Return the container of a conversation over an opened session."""
    return _create_container(
        settings=app.settings,
        environ=app.environ,
        open_model=app.open_model,
        store=app.store,
        now=app.now,
        new_id=app.new_id,
        http=app.http,
        instruments=app.instruments,
        ripgrep=app.ripgrep,
        extra_tools=app.extra_tools,
        agent=app.agent,
        files=providers.Object(files),
    )


def _create_container(**members: object) -> SessionContainer:
    """Return a container of these members. Each of its subagents gets a container of its own."""

    def open_child(
        spec: AgentSpec, files: SubagentFiles, model: ChatModel | None, subagent: SubagentIdentity
    ) -> Conversation:
        return _open_subagent_conversation(container, spec, files, model, subagent)

    container = SessionContainer(**members, open_child=providers.Object(open_child))
    return container


def replace_workspace(container: SessionContainer, workspace: Workspace) -> None:
    """Let a conversation use this workspace. Must be called before any member of the container is made."""
    cast("_OverridableProvider", container.workspace).override(providers.Object(workspace))


def leave_last_session(container: SessionContainer) -> None:
    """Let a session not become the last one of its work directory: that is one file, and many sessions would queue.

    Must be called before any member of the container is made.
    """
    session = ConversationSession(container.files())
    cast("_OverridableProvider", container.stored_session).override(providers.Object(session))


class _OverridableProvider(Protocol):
    """The members of a provider that are used here; the library does not type them."""

    @property
    def overridden(self) -> tuple[object, ...]: ...

    def override(self, provider: object) -> object: ...


@asynccontextmanager
async def open_conversation(
    app: App,
    selector: SessionSelector,
    *,
    time_left: Callable[[], float] = lambda: math.inf,
    adapt_container: Callable[[SessionContainer], None] = lambda session: None,
    close_http: bool = True,
    connect_servers: bool = True,
    restore_options: RestoreOptions | None = None,
) -> AsyncGenerator[Conversation, None]:
    """Open the selected session and its conversation; close both on leaving.

    On leaving, `time_left()` returns how many seconds the session-end hooks may take. `adapt_container` may override
    members of the session's container before any is made. With `close_http` the HTTP client is closed, too; then no
    other conversation may use it. Without `connect_servers` MCP servers are connected by `start_servers`, or by the
    first turn. `restore_options` are the driver's options for restoring the session; by default errors are logged.

    Raises InvalidSessionId, SessionBusy, StoreFailed, UsageError; ConfigError when the model cannot be made, or
    a required MCP server cannot be used.
    """
    began = time.perf_counter()
    app.agent()  # raises for a wrong agent file before the session is touched, as does the next for a missing library
    instruments = app.instruments()
    files = await open_session(app.store(), selector, app.new_id())
    session = create_session_container(app, files)
    try:
        adapt_container(session)
        await _load_skills(session)
        check_prompts(app.agent(), session.load_prompt())
        plugins = await _load_plugins(session)
        conversation = session.conversation()
        if plugins is not None:
            conversation.toolset.use_plugins(session.plugin_tools(), plugins.list_faults())
        restore_session(conversation, app.settings(), restore_options or RestoreOptions())
        servers = session.server_tools() if session.settings().mcp.servers else None
        async with _conversation_lifespan(conversation, servers, time_left, connect_servers=connect_servers):
            if instruments is not None:
                instruments.opening_duration.record(time.perf_counter() - began)
            yield conversation
    finally:
        session.cleanup().close()
        spans = session.spans()
        if spans is not None:
            spans.close()
        files.close()  # before the awaits, which may be cancelled
        if spans is not None:
            from kimi.infrastructure.observability.exporting import flush_spans

            with CancelScope(shield=True):  # a process that ends by a signal has no later moment for it
                await to_thread.run_sync(flush_spans)
        if close_http:
            await app.http().close()


async def _load_skills(session: SessionContainer) -> None:
    """Load the skills off the event loop; without any, nothing waits for a thread."""
    from kimi.infrastructure.definitions.skill_files import has_skill_directories

    if has_skill_directories(session.skill_paths()):
        await session.skills().load()


async def _load_plugins(session: SessionContainer) -> InstalledPlugins | None:
    """Load the plugins off the event loop, before anything asks for them there; None without a directory of them."""
    return await to_thread.run_sync(session.plugins) if find_plugin_directory(session.settings()) else None


@asynccontextmanager
async def _conversation_lifespan(
    conversation: Conversation, servers: ServerTools | None, time_left: Callable[[], float], *, connect_servers: bool
) -> AsyncGenerator[None, None]:
    """Start and end what runs beside a conversation. On leaving, background tasks and MCP servers are asked to end,
    then the session-end hooks run, then all are awaited, within `time_left()` seconds.

    Raises ConfigError: a required MCP server cannot be used.
    """
    # Contexts end in reverse order. Those that ask to end are entered last and those that wait are entered first, so
    # that tasks and servers end while the hooks run.
    background = conversation.resources.background
    async with AsyncExitStack() as stack:
        await stack.enter_async_context(wait_for_tasks_on_exit(background))
        ending = nullcontext()
        if servers is not None:
            from kimi.application.control.mcp_servers import servers_lifespan, stop_servers_on_exit  # start-up time

            connected = servers_lifespan(conversation, servers, time_left, connect=connect_servers)
            await stack.enter_async_context(connected)
            ending = stop_servers_on_exit(conversation)
        await stack.enter_async_context(session_hooks_lifespan(conversation, time_left))
        await stack.enter_async_context(stop_tasks_on_exit(background))
        await stack.enter_async_context(ending)
        yield


def _open_subagent_conversation(
    session: SessionContainer,
    spec: AgentSpec,
    files: SubagentFiles,
    model: ChatModel | None,
    subagent: SubagentIdentity,
) -> Conversation:
    """Return the conversation of a subagent: its own tools, over the parent's workspace and path policy."""
    parent = session.conversation()
    stored_session = ConversationSession(files)
    toolset = _create_child_container(session, spec, stored_session).toolset()
    toolset.hide(parent.toolset.hidden_names)
    if parent.toolset.servers is not None:
        toolset.use_servers(parent.toolset.servers.for_subagents())
    return build_subagent_conversation(
        parent, subagent, stored_session, model, toolset, lambda: session.load_prompt()(spec)
    )


def _create_child_container(
    session: SessionContainer, spec: AgentSpec, stored_session: ConversationSession
) -> SessionContainer:
    """A container beside that of the parent. What was put in the place of a tool there holds here too."""
    dependencies = {name: getattr(session, name) for name in session.dependencies if name != "open_child"}
    shared = {name: getattr(session, name) for name in ("workspace", "path_policy", "sandbox", "conversation")}
    own = {
        "agent": providers.Object(spec),
        "files": providers.Object(stored_session.files),
        "stored_session": providers.Object(stored_session),  # its tools change the state that its conversation changes
        "file_record": providers.Object(session.file_record().fork_for_subagent()),
    }
    child = _create_container(**dependencies | shared | own)
    for tool_id, provider in session.tools.providers.items():
        for replacement in cast("_OverridableProvider", provider).overridden:
            cast("_OverridableProvider", child.tools.providers[tool_id]).override(replacement)
    return child


def bind_negotiation(
    app: App, conversation: Conversation
) -> Callable[[Client, Sequence[ExternalToolOffer]], InitializeOutcome]:
    """Return the use-case `negotiate_initialize` with its ports bound."""
    settings = app.settings()

    def negotiate(client: Client, offers: Sequence[ExternalToolOffer]) -> InitializeOutcome:
        return negotiate_initialize(
            conversation,
            client,
            offers,
            check_schema=app.check_schema(),
            check_arguments=app.check_arguments(),
            external_timeout_s=settings.tools.external_timeout_s,
        )

    return negotiate


def warm_up(app: App) -> None:
    """Import what the first turn needs. Runs in a thread after the handshake was answered."""
    from kimi.application.turn import run_turn
    from kimi.infrastructure.models.provider_types import import_adapter
    from kimi.infrastructure.store import call_repair, kimi_json
    from kimi.infrastructure.store.files import lines
    from kimi.infrastructure.tools.dialog import ask_user_question as ask
    from kimi.infrastructure.tools.dialog import plan_mode as plan
    from kimi.infrastructure.tools.dialog import set_todo_list as todo
    from kimi.infrastructure.tools.dialog import subagents as agent
    from kimi.infrastructure.tools.files import read_file, str_replace_file, write_file
    from kimi.infrastructure.tools.params import build_schemas
    from kimi.infrastructure.tools.search import glob, grep
    from kimi.infrastructure.tools.shell import background_tasks, shell
    from kimi.infrastructure.tools.web import fetch_url
    from kimi.infrastructure.workspace import processes

    _ = (run_turn, shell, call_repair, kimi_json, lines, processes)
    model = app.settings().model
    import_adapter(model, app.http())
    app.http().warm(model.base_url if model else "")
    build_schemas(
        agent, ask, background_tasks, fetch_url, glob, grep, plan, read_file, str_replace_file, todo, write_file
    )


# --- several sessions in one process -------------------------------------------------------------------------------


def derive_app(shared: App, settings: Callable[[], Settings], stored_work_dir: str | None) -> App:
    """Return the app of one session, whose settings may change.

    It shares what does not depend on them: the HTTP client for providers, the agent, the search program.
    """
    return App(
        settings=providers.Callable(settings),
        environ=_delegate_to(shared.environ),
        now=_delegate_to(shared.now),
        new_id=_delegate_to(shared.new_id),
        http=_delegate_to(shared.http),
        instruments=_delegate_to(shared.instruments),
        ripgrep=_delegate_to(shared.ripgrep),
        extra_tools=_delegate_to(shared.extra_tools),
        agent=_delegate_to(shared.agent),
        store=providers.Singleton(_build_store, settings, stored_work_dir),
    )


def _build_store(settings: Callable[[], Settings], stored_work_dir: str | None) -> SessionStore:
    found = settings()
    if stored_work_dir is not None:
        found = found.model_copy(update={"work_dir": stored_work_dir})
    return build_store(found, LOCK_WAIT_S)


def _delegate_to(provider: Callable[[], Any]) -> Any:
    """Return a provider that returns what `provider` returns.

    The shared provider itself would keep every container that it was passed to for ever.
    """

    def give() -> Any:
        return provider()

    return providers.Callable(give)
