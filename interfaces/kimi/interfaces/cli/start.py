"""Start a driver from parsed flags: streams, log, settings, and the report of a failed start (runtime spec 1.3)."""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import TYPE_CHECKING, TypeAlias

from kimi.application.settings.flags import Flags, UiMode, share_directory
from kimi.domain.errors import UsageError
from kimi.interfaces.process.log import hide_secrets, log_path, mask_secrets, start_logging
from kimi.interfaces.process.streams import Streams, take_streams

if TYPE_CHECKING:
    from kimi.application.settings.settings import Settings

    LoadSettings: TypeAlias = Callable[[Flags, Mapping[str, str]], Settings]
    Serve: TypeAlias = Callable[[Flags, Settings, Streams], int]

logger = logging.getLogger("kimi.start")


def start_driver(
    flags: Flags,
    environ: Mapping[str, str],
    load: LoadSettings | None = None,
    serve: Serve | None = None,
) -> int:
    """Run the driver that `flags` select until it ends; return the exit status.

    `load` loads the settings and `serve` runs the driver; by default, those of the composition root and of the mode.
    Raises nothing: a failure before the driver runs is written to the stderr of the start, with status 1 or 2.
    """
    share = share_directory(environ)
    protocol = flags.ui in ("wire", "acp")
    streams = take_streams(share, protocol or flags.ui == "print")  # programs read the output of print mode too
    start_logging(share, flags.debug)
    try:
        return _load_and_serve(flags, environ, streams, load, serve)
    except KeyboardInterrupt:
        return 0 if protocol else _report_interrupt(flags, streams) if flags.ui == "print" else 130
    except Exception as error:
        return _report_start_failure(error, streams, log_path(share), flags.debug)


def _load_and_serve(
    flags: Flags, environ: Mapping[str, str], streams: Streams, load: LoadSettings | None, serve: Serve | None
) -> int:
    if load is None:
        from kimi.interfaces.bootstrap.start import load_settings as load  # start-up time
    settings = load(flags, environ)
    hide_secrets(settings.secret_values)
    _protect_process(settings)
    if settings.sandbox.mode != "off":
        from kimi.interfaces.bootstrap.tools.machine import check_sandbox  # start-up time

        check_sandbox()
    if settings.observability.enabled:
        from kimi.interfaces.bootstrap.models import start_exporting  # start-up time

        start_exporting(settings, environ)
    if flags.prompt is not None and flags.ui == "wire":
        logger.warning("--prompt is ignored in wire mode")
    return (serve or _import_driver(flags.ui))(flags, settings, streams)


def _protect_process(settings: Settings) -> None:
    """Hide the secrets that the environment and the command line of this process hold from other programs."""
    from kimi.interfaces.bootstrap.start import claim_process

    claim_process()
    if settings.secret_variables:
        from kimi.interfaces.process.self_protection import hide_secrets_of_process  # start-up time

        hide_secrets_of_process(settings.secret_variables, settings.secret_values)


def _import_driver(ui: UiMode) -> Serve:
    """Import and return the driver of a mode; start-up time: no other driver, and only after valid settings."""
    match ui:
        case "wire":
            from kimi.interfaces.wire.run import run_wire

            return run_wire
        case "acp":
            from kimi.interfaces.acp.run import run_acp

            return run_acp
        case "print":
            from kimi.interfaces.print.run import run_print

            return run_print
        case "shell":
            from kimi.interfaces.shell.run import run_shell

            return run_shell


def _report_interrupt(flags: Flags, streams: Streams) -> int:
    """Write the interrupt where print mode writes its failures, because its driver does not run yet."""
    from kimi.interfaces.print.failure import EXIT_FAILED, INTERRUPTED
    from kimi.interfaces.print.output import encode_failure

    with suppress(OSError):
        os.write(streams.stdout_fd, encode_failure(INTERRUPTED, flags.output_format))
    return EXIT_FAILED


def _report_start_failure(error: BaseException, streams: Streams, log: str, debug: bool) -> int:
    from kimi.interfaces.process.startup_errors import (  # start-up time
        format_failure,
        format_usage_error,
        format_usage_panel,
        unwrap_single_cause,
    )

    error = unwrap_single_cause(error)
    if isinstance(error, UsageError):
        streams.write_error(mask_secrets(format_usage_panel(format_usage_error(error))))
        return 2
    logger.error("The start failed", exc_info=error)
    streams.write_error(mask_secrets(format_failure(error, log, debug)))
    return 1
