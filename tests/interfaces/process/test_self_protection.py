"""What other programs see of a process, and what the process and its own programs keep (runtime spec 2.8)."""

from __future__ import annotations

import json
import subprocess
import sys
from typing import Any

import pytest

PROGRAM = """
import json, os, subprocess, sys
from kimi.interfaces.process.self_protection import hide_option_values, hide_secrets_of_process

hide_option_values()
hide_secrets_of_process({"NAMED", "SHORT", "MISSING"}, {"planted-secret", "planted-secret-of-more", "tiny"})
seen = {part: open(f"/proc/self/{part}", "rb").read().decode().split("\\0")[:-1] for part in ("cmdline", "environ")}
kept = {name: os.environ[name] for name in ("NAMED", "SHORT", "WITHIN", "PLAIN")}
child = [sys.executable, "-c", "import os; print(os.environ['NAMED'], os.environ['SHORT'])"]
inherited = subprocess.run(child, stdout=subprocess.PIPE, check=True).stdout.decode().split()
print(json.dumps({**seen, "kept": kept, "inherited": inherited, "argv": sys.argv[1:]}))
"""


def look(*arguments: str) -> dict[str, Any]:
    env = {"NAMED": "a key", "SHORT": "k", "WITHIN": "https://planted-secret-of-more@h", "PLAIN": "tiny a=b=c"}
    done = subprocess.run([sys.executable, "-c", PROGRAM, *arguments], env=env, stdout=subprocess.PIPE, check=True)
    return json.loads(done.stdout)


@pytest.mark.spec("R-174")
def test_secrets_are_blanked_for_others_and_kept_for_us() -> None:
    arguments = [
        "--config",
        "a = 'tiny'",
        "--mcp-config={}",
        "--config-file",
        "x.toml",
        "planted-secret",
        "",
        "-e",
        "KEY=tiny",
        "-HX-Key: tiny",
        "--env=A=b",
        "--config",
    ]
    seen = look(*arguments)
    assert seen["cmdline"][3:] == [
        "--config", "*" * 10, "--mcp-config=**", "--config-file", "x.toml", "*" * 14, "",
        "-e", "*" * 8, "-H***********", "--env=***", "--config",
    ]  # fmt: skip
    assert set(seen["environ"]) >= {
        "NAMED=*****", "SHORT=*", "WITHIN=https://" + "*" * 22 + "@h", "PLAIN=tiny a=b=c",
    }  # fmt: skip
    assert seen["argv"] == arguments
    assert seen["kept"]["NAMED"] == "a key"
    assert seen["kept"]["WITHIN"] == "https://planted-secret-of-more@h"
    assert seen["inherited"] == ["a", "key", "k"]
