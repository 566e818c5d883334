"""What `kimi mcp get` shows of an entry, and what it hides (R-48)."""

from __future__ import annotations

import json

from kimi.application.admin.mcp_secrets import encode_entry, mask_server_secrets


def is_reference(text: str) -> bool:
    return text.startswith("${")


def test_only_harmless_keys_show_their_values() -> None:
    entry = {"command": "x", "args": ["y"], "env": {"A": "1", "B": "${B}"}, "auth": "oauth", "new": 5, "list": ["z"]}
    assert json.loads(encode_entry(entry, (), is_reference)) == {
        "command": "x",
        "args": ["y"],
        "env": {"A": "***", "B": "${B}"},
        "auth": "oauth",
        "new": "***",
        "list": "***",
    }


def test_secret_in_a_harmless_key_is_masked() -> None:
    entry = {"url": "https://h.test?key=sk-1", "headers": {"X": "sk-1"}}
    shown = json.loads(encode_entry(entry, ["sk-1"], is_reference))
    assert shown == {"url": "https://h.test?key=***", "headers": {"X": "***"}}


def test_entry_that_is_no_object_is_hidden_whole() -> None:
    assert encode_entry("sk-1", (), is_reference) == '"***"'


def test_longest_secret_is_masked_first() -> None:
    assert mask_server_secrets("sk-12 sk-1", ["sk-1", "sk-12"]) == "*** ***"
