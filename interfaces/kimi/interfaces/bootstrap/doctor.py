"""What `kimi doctor` and `kimi setup` look at. A composition root beside `container`, imports are late."""

from __future__ import annotations

import logging
import sys
from collections.abc import AsyncGenerator, Mapping
from contextlib import asynccontextmanager

import anyio

from kimi.application.ports import ChatModel
from kimi.application.settings.settings import McpServer, Settings
from kimi.domain.errors import ConfigError
from kimi.interfaces.bootstrap.containers import App
from kimi.interfaces.bootstrap.injector import providers
from kimi.interfaces.process.log import hide_secrets
from kimi.interfaces.version import __version__

logger = logging.getLogger(__name__)


@asynccontextmanager
async def open_configured_model(
    settings: Settings, environ: Mapping[str, str]
) -> AsyncGenerator[ChatModel | None, None]:
    """The model that would answer a prompt, None when there is none; its connections are closed on leaving.

    Raises:
        ConfigError: its settings cannot be used.
    """
    quiet = {name: value for name, value in environ.items() if name != "KIMI_RECORD"}
    app = App(settings=providers.Object(settings), environ=providers.Object(quiet))
    try:
        yield app.open_model()(app.new_id()(), lambda: "")
    finally:
        await app.http().close()


async def list_offered_models(base_url: str, api_key: str, environ: Mapping[str, str], timeout_s: float) -> list[str]:
    """The ids of the models that a server with OpenAI's interface lists; none when it does not, or not in time."""
    from kimi.infrastructure.http.client import HttpClient, HttpError
    from kimi.infrastructure.models.model_listing import list_model_ids

    http = HttpClient(environ)
    try:
        with anyio.move_on_after(timeout_s):
            return await list_model_ids(base_url, api_key, http)
    except (HttpError, ConfigError, ValueError) as error:
        logger.info("the models of %s are not known: %s", base_url, error)
    finally:
        await http.close()
    return []


def resolve_proxy(url: str, environ: Mapping[str, str]) -> str | None:
    """The proxy for requests to `url`, as `scheme://host:port` without its password; None without one.

    Raises:
        ConfigError: the environment names a proxy that cannot be used, or that needs a library which is not there.
    """
    from urllib.parse import urlsplit

    from kimi.infrastructure.http.client import import_socks_library
    from kimi.infrastructure.http.proxy import find_proxy, is_socks

    proxy = find_proxy(url, environ)
    if proxy is None:
        return None
    if is_socks(proxy):
        import_socks_library()
    parts = urlsplit(proxy)
    return f"{parts.scheme}://{parts.hostname}:{parts.port}"


async def find_ripgrep(settings: Settings, environ: Mapping[str, str]) -> str | None:
    """The ripgrep that searches would use; None when there is none that starts."""
    from kimi.infrastructure.tools.search.ripgrep import Ripgrep
    from kimi.infrastructure.workspace.local import LocalWorkspace

    workspace = LocalWorkspace(settings.work_dir, settings.shell, settings.secret_variables, environ)
    command = await Ripgrep(settings.tools.ripgrep_path, environ).find_command(workspace)
    return command[0] if command[0] != sys.executable else None


async def count_mcp_tools(server: McpServer, settings: Settings, environ: Mapping[str, str]) -> int:
    """Connect to the server and count its tools; it is disconnected then.

    Raises:
        ConfigError: its entry cannot be used. McpUnauthorized: the user has to log in.
        Exception: whatever else the library raises when it cannot connect.
    """
    from kimi.infrastructure.json_schema import check_schema
    from kimi.infrastructure.mcp.host_context import McpHostContext
    from kimi.infrastructure.mcp.probe import list_offered_tools

    here = settings.work_dir
    place = McpHostContext(here, settings.share_dir, environ, __version__, check_schema, lambda: [here], hide_secrets)
    return len(await list_offered_tools(server, place))
