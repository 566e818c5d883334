"""`kimi web`: serve the page and the wire protocol over WebSocket until a signal comes (wire spec 13)."""

from __future__ import annotations

import logging
import os
import re
import signal
import socket
import sys
import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from importlib import import_module
from typing import TYPE_CHECKING, Final

import anyio.to_thread

from kimi.application.settings.flags import Flags
from kimi.application.settings.settings import Settings
from kimi.domain.errors import UsageError
from kimi.interfaces.bootstrap.start import import_http_library
from kimi.interfaces.bootstrap.store import build_session_catalog
from kimi.interfaces.process import startup_tuning
from kimi.interfaces.process.driver_process import DriverProcess, ExitRules
from kimi.interfaces.process.log import hide_secrets
from kimi.interfaces.process.streams import Streams
from kimi.interfaces.web.access import AccessRules, is_loopback, make_token, normalise_names
from kimi.interfaces.web.sessions.directories import AllowedDirectories

if TYPE_CHECKING:
    from anyio.abc import TaskGroup

    from kimi.interfaces.bootstrap.containers import App
    from kimi.interfaces.web.server import WebServer
    from kimi.interfaces.web.service import WebService

logger = logging.getLogger(__name__)

DEFAULT_PORT: Final = 5494
PORTS_TO_TRY: Final = 10
"""How many ports are tried, from the default one on, when none is named."""

_EXIT_RULES: Final = ExitRules(
    timeout_s=4.5,
    kill_reserve_s=1.5,
    close_timeout_s=2.0,  # the other sessions continue while one closes
    immediate_signals=frozenset(signal.Signals),
    ends_by_signal=False,
)


@dataclass(frozen=True, slots=True)
class WebOptions:
    """The options of `kimi web`; a port of None is the first free one from the default one on, 0 any free one."""

    host: str = "127.0.0.1"
    port: int | None = None
    opens_browser: bool = True
    directories: Sequence[str] = ()
    allowed_hosts: Sequence[str] = ()


def run_web(options: WebOptions, flags: Flags, settings: Settings, streams: Streams) -> int:
    """Serve until a signal comes; return the exit status, 0. Raises UsageError: the address or token is no good."""
    token = read_token(os.environ) or make_token()
    listening = bind(options)
    rules = make_rules(options, token, listening)
    hide_secrets([token])
    address = format_address(options.host, listening.getsockname()[1], token)
    streams.write_error(format_greeting(address, options.host, rules))
    if options.opens_browser:
        threading.Thread(target=open_browser, args=(address, os.environ), daemon=True).start()
    # Who has the link may connect from here on: the request waits while this is imported.
    import_http_library()
    from kimi.interfaces.web.server import WebServer

    process = DriverProcess(streams, _EXIT_RULES)
    directories = allow_directories(options, settings)
    server = WebServer(rules, partial(_open_service, flags, settings, directories, process))
    return process.run(partial(_serve, server, process, listening))


async def _serve(server: WebServer, process: DriverProcess, listening: socket.socket) -> int:
    async with process.watch(server.stop) as tasks:
        tasks.start_soon(server.serve, listening)
        await server.ended.wait()
    return 0


async def _open_service(
    flags: Flags, settings: Settings, directories: AllowedDirectories, process: DriverProcess, tasks: TaskGroup
) -> WebService:
    """Import what the first page does not need, while the page is served, and return it."""
    await anyio.to_thread.run_sync(import_module, "kimi.interfaces.web.service", abandon_on_cancel=True)
    from kimi.interfaces.bootstrap.containers import App
    from kimi.interfaces.bootstrap.injector import providers
    from kimi.interfaces.web.service import WebService

    startup_tuning.end()
    app = App(settings=providers.Object(settings))
    tasks.start_soon(_import_ahead, app)
    return WebService(flags, app, directories, tasks, time_left=process.time_left)


async def _import_ahead(app: App) -> None:
    """Import what the first prompt needs."""
    from kimi.interfaces.bootstrap.opening import warm_up

    try:
        await anyio.to_thread.run_sync(warm_up, app, abandon_on_cancel=True)
    except Exception:  # the code that needs the module imports it again and reports the error
        logger.exception("importing ahead failed")


def read_token(environ: Mapping[str, str]) -> str:
    """Return the token that the user has chosen, so that a link outlives the process; empty for none.

    Raises UsageError: it could be guessed, or would be another one in a link.
    """
    token = environ.get("KIMI_WEB_TOKEN", "")
    if token and not re.fullmatch(r"[A-Za-z0-9_-]{32,256}", token):
        raise UsageError("KIMI_WEB_TOKEN must have 32 to 256 letters, digits, '-' or '_', and be random")
    return token


def bind(options: WebOptions) -> socket.socket:
    """Return a listening socket. Raises UsageError when the address cannot be used."""
    ports = range(DEFAULT_PORT, DEFAULT_PORT + PORTS_TO_TRY) if options.port is None else [options.port]
    reason = ""
    for port in ports:
        try:
            family, kind, protocol, _, address = socket.getaddrinfo(
                options.host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
            )[0]
            found = socket.socket(family, kind, protocol)
        except (OSError, UnicodeError) as error:
            why = error.strerror if isinstance(error, OSError) else "it is no name"
            raise UsageError(f"'{options.host}' is no address of this machine: {why}", "--host") from None
        try:
            if os.name == "posix":  # elsewhere it would let another program take over the port
                found.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            found.bind(address)
            found.listen(128)
        except OSError as error:
            found.close()
            reason = error.strerror or ""
            continue
        return found
    named = options.port if options.port is not None else f"{ports[0]} to {ports[-1]}"
    raise UsageError(f"Port {named} of {options.host} cannot be used: {reason}. Name another one", "--port")


def make_rules(options: WebOptions, token: str, listening: socket.socket) -> AccessRules:
    """Return who is let in. Raises UsageError: a name is none."""
    try:
        names = normalise_names(options.allowed_hosts)
    except ValueError as error:
        reason = f"'{error}' is no name of a host, such as box.example: leave scheme, port and path out"
        raise UsageError(reason, "--allowed-host") from None
    address = listening.getsockname()[0]
    return AccessRules(token, address, names | normalise_names([options.host]))  # the link names it


def allow_directories(options: WebOptions, settings: Settings) -> AllowedDirectories:
    """Return which directories may be opened: those that are named, else the work directory and all with sessions."""
    if options.directories:
        return AllowedDirectories(options.directories)
    catalog = build_session_catalog(settings.share_dir)
    return AllowedDirectories([settings.work_dir], lambda: {one.work_dir for one in catalog.list_sessions()})


def format_address(host: str, port: int, token: str) -> str:
    """Return the link that logs in."""
    shown = {"0.0.0.0": "127.0.0.1", "::": "[::1]"}.get(host, f"[{host}]" if ":" in host else host)
    return f"http://{shown}:{port}/?token={token}"


def format_greeting(address: str, host: str, rules: AccessRules) -> str:
    """Return what is written to the terminal."""
    lines = [f"kimi web: {address}", "Whoever has this link works as you on this machine. Ctrl-C ends it."]
    if not is_loopback(rules.host):
        lines.append(
            f"Listening on {host}: without TLS, everybody on the way can read the token and take over; "
            "put a proxy with TLS in front, or use an ssh tunnel or a private network."
        )
    return "\n".join(lines) + "\n"


def open_browser(address: str, environ: Mapping[str, str]) -> None:
    """Open the link in the browser of the user, where there is a screen for one."""
    import webbrowser

    has_screen = sys.platform in ("darwin", "win32") or "DISPLAY" in environ or "WAYLAND_DISPLAY" in environ
    if not has_screen or "SSH_CONNECTION" in environ:
        return
    try:
        webbrowser.open(address)
    except Exception:  # the link is printed, too
        logger.info("no browser could be opened", exc_info=True)
