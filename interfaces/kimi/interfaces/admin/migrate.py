"""`kimi migrate`: report what of a share directory works, as lines or one JSON object; change it with `--apply`."""

from __future__ import annotations

import logging
import os
import sys
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from json import dumps

from kimi.application.admin.migration import MigrationItem, judge_share, list_changes
from kimi.application.settings.flags import share_directory
from kimi.domain.errors import KimiError
from kimi.interfaces.bootstrap.migration import apply_migration, read_share
from kimi.interfaces.process.log import hide_secrets, mask_secrets
from kimi.interfaces.process.streams import write_stderr
from kimi.interfaces.process.terminal_escape import escape_line


def run_migrate(work_dir: str, apply: bool, as_json: bool, environ: Mapping[str, str] | None = None) -> int:
    """Report on the share directory; return 1 when the program cannot start with it, else 0.

    Nothing is changed without `apply`.
    """
    environ = os.environ if environ is None else environ
    share = share_directory(environ)
    if not os.path.isdir(share):
        write_stderr(f"There is no directory {escape_line(share)}: nothing was left by kimi-cli. Run 'kimi setup'.\n")
        return 1
    logging.getLogger("kimi").addHandler(logging.NullHandler())  # nothing is logged: that would write to the directory
    try:
        found = read_share(share, work_dir, environ, sys.argv[0])
        changes, backup = list_changes(found), ""
        if apply and changes:
            backup = apply_migration(share)
            found = read_share(share, work_dir, environ, sys.argv[0])
    except KimiError as error:
        write_stderr(f"{escape_line(mask_secrets(str(error)), 600)}\nNothing was changed.\n")
        return 1
    if found.settings is not None:
        hide_secrets(found.settings.secret_values)
    items = judge_share(found)
    is_broken = any(item.status == "broken" for item in items)
    if as_json:
        told = [{name: _clean(text) for name, text in asdict(item).items()} for item in items]
        report = {"ok": not is_broken, "share": share, "items": told, "changes": [*map(_clean, changes)]}
        print(dumps(report | {"applied": bool(backup), "backup": backup or None}))
    else:
        _print_report(share, items, [*map(_clean, changes)], backup, apply)
    return 1 if is_broken else 0


def _print_report(share: str, items: Sequence[MigrationItem], changes: Sequence[str], backup: str, apply: bool) -> None:
    print(f"Share directory: {escape_line(share)}")
    for item in items:
        message = _clean(item.message)
        sentence = message if message.endswith((".", "!", "?")) else f"{message}."
        words = [f"{item.status:<7}", f"{_clean(item.name)}:", sentence, _clean(item.advice)]
        print(" ".join(word for word in words if word))
    if backup:
        print("\n".join(["Changed:", *(f"  {one}" for one in changes), f"The old files are in {escape_line(backup)}."]))
    elif changes:
        print("\n".join(["'kimi migrate --apply' would change:", *(f"  {one}" for one in changes)]))
    elif apply:
        print("There was nothing to change.")


def _clean(text: str) -> str:
    return escape_line(mask_secrets(text), limit=600)
