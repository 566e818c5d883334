"""`kimi login` and `kimi logout`: keys take the place of an account login (runtime spec 1.6)."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from json import dumps
from typing import Final, Literal

from kimi.application.settings.flags import share_directory
from kimi.domain.errors import KimiError
from kimi.interfaces.process.startup_errors import NO_LOGIN
from kimi.interfaces.process.streams import write_stderr

NOTHING_STORED: Final = "Nothing is stored: there is no key and no login."


def run_login(as_json: bool, config_file: str | None = None) -> int:
    """Run the setup on a terminal; elsewhere say what to run. Return the exit status: 0 when something was written."""
    if not as_json and sys.stdin and sys.stdin.isatty() and sys.stdout.isatty():
        from kimi.interfaces.admin.setup import run_setup  # start-up time

        return run_setup(config_file=config_file)
    _tell(as_json, "error", NO_LOGIN)
    return 1


def run_logout(as_json: bool, config_file: str | None = None, environ: Mapping[str, str] | None = None) -> int:
    """Remove every stored key, and the account login of kimi-cli; return the exit status: 0 also if there was none."""
    environ = os.environ if environ is None else environ
    share = share_directory(environ)
    if config_file is None and not os.path.isdir(share):
        _tell(as_json, "success", NOTHING_STORED)
        return 0
    try:
        said = remove_stored_keys(share, config_file)
    except KimiError as error:
        _tell(as_json, "error", str(error))
        return 1
    _tell(as_json, "success", f"{said}{_warn_of_variables(environ)}")
    return 0


def remove_stored_keys(share: str, config_file: str | None = None) -> str:
    """Remove every stored key and login; return a sentence that names them. Raises ConfigError."""
    from kimi.application.admin.setup import build_logout  # start-up time
    from kimi.interfaces.bootstrap.admin import build_configuration_file
    from kimi.interfaces.process.terminal_escape import escape_line

    configuration = build_configuration_file(share, config_file)
    changes = build_logout(configuration.read())
    if changes:
        configuration.change(changes)
    keys = [f"the key of {path[0].removesuffix('s')} '{escape_line(path[1])}'" for path in changes]
    removed = [*keys, *(f"the login {escape_line(path)}" for path in configuration.remove_logins())]
    said = f"Removed: {', '.join(removed)}." if removed else NOTHING_STORED
    backups = os.path.join(share, "backups")
    return f"{said} Copies of keys may be left in {escape_line(backups)}." if os.path.isdir(backups) else said


def _warn_of_variables(environ: Mapping[str, str]) -> str:
    """Return a sentence about variables that hold keys as well; empty without any."""
    from kimi.interfaces.admin.provider_presets import API_KEY_VARIABLES  # start-up time

    still = sorted({name for name in API_KEY_VARIABLES.values() if environ.get(name)})
    return f" Keys are also in the environment, where they stay: {', '.join(still)}." if still else ""


def _tell(as_json: bool, kind: Literal["error", "success"], message: str) -> None:
    if as_json:
        print(dumps({"type": kind, "message": message}), flush=True)
    elif kind == "error":
        write_stderr(f"{message}\n")
    else:
        print(message, flush=True)
