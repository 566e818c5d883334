"""What a confined command may do with a path, and what looks like a denial (runtime spec 7.10)."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kimi.domain.permissions.confinement import (
    AccessRule,
    Confinement,
    find_access,
    find_gitlinks,
    list_access_rules,
    list_protected_paths,
    looks_denied,
    parse_git_pointer,
)

WORKSPACE = Confinement(
    mode="workspace",
    work_dir="/h/work",
    temp_dir="/tmp/t",
    writable=("/h/work",),
    readable=("/h/.kimi/skills",),
    protected=("/h/work/.git",),
    hidden=("/h/.kimi",),
)


@pytest.mark.parametrize(
    ("path", "access"),
    [
        ("/", "read"),
        ("/h/workshop", "read"),
        ("/h/work", "write"),
        ("/h/work/a/b", "write"),
        ("/h/work/.git/config", "read"),
        ("/h/work/.github", "write"),
        ("/h/.kimi/config.toml", "hidden"),
        ("/h/.kimi/skills/one", "read"),
        ("/tmp/t/x", "write"),
        ("/tmp", "read"),
    ],
)
def test_the_longest_rule_decides_on_a_path(path: str, access: str) -> None:
    assert find_access(list_access_rules(WORKSPACE), path) == access


def test_in_read_only_mode_only_the_temporary_directory_is_writable() -> None:
    rules = list_access_rules(replace(WORKSPACE, mode="read-only"))
    assert [rule.path for rule in rules if rule.access == "write"] == ["/tmp/t"]
    assert AccessRule("/h/work", "read") in rules, "what covers its place must not hide it"


def test_for_one_path_hidden_counts_over_protected_over_writable() -> None:
    both = replace(WORKSPACE, writable=("/a", "/b", "/c"), protected=("/b", "/c"), hidden=("/c",), readable=("/a",))
    rules = list_access_rules(both)
    assert [find_access(rules, path) for path in ("/a", "/b", "/c")] == ["write", "read", "hidden"]


PATHS = st.lists(st.sampled_from("abc"), min_size=1, max_size=4).map(lambda names: "/" + "/".join(names))
MANY = st.lists(PATHS, max_size=4).map(tuple)


@given(MANY, MANY, MANY, PATHS)
def test_no_rule_opens_what_another_one_hides(
    writable: tuple[str, ...], hidden: tuple[str, ...], protected: tuple[str, ...], path: str
) -> None:
    confinement = replace(WORKSPACE, writable=writable, hidden=hidden, protected=protected, readable=())
    rules = list_access_rules(confinement)
    assert [rule.path.count("/") for rule in rules] == sorted(rule.path.count("/") for rule in rules)
    if path in hidden:
        assert find_access(rules, path) == "hidden"
    elif path in protected:
        assert find_access(rules, path) == "read"


def test_the_repository_and_our_own_directory_are_protected_in_a_root() -> None:
    assert list_protected_paths("/r") == ("/r/.git", "/r/.kimi")


@pytest.mark.parametrize(
    ("text", "path"),
    [
        ("gitdir: ../real/.git\n", "/w/real/.git"),
        ("gitdir: /abs/x\r\n", "/abs/x"),
        ("gitdir:x", "/w/tree/x"),
        ("[core]\n", None),
        ("", None),
    ],
)
def test_a_git_file_names_its_repository(text: str, path: str | None) -> None:
    assert parse_git_pointer(text, "/w/tree") == path


def test_no_path_of_a_submodule_leads_out_of_the_repository() -> None:
    def entry(path: bytes) -> bytes:
        return bytes(24) + b"\0\0\xe0\0" + bytes(12) + b"h" * 20 + b"\0\1" + path + bytes(8)

    found = find_gitlinks(b"DIRC" + b"".join(map(entry, (b"lib/a", b"../out", b"/abs", b"b/../..", b"c/./d"))))
    assert {"lib/a", "c/d"} <= set(found)
    assert [path for path in found if path.startswith(("/", ".."))] == []
    assert find_gitlinks(b"") == ()


@given(st.binary(max_size=200))
def test_any_bytes_are_taken_for_an_index(data: bytes) -> None:
    assert all(path and "\0" not in path for path in find_gitlinks(data + b"\0\0\xe0\0" + data))


@pytest.mark.parametrize(
    ("output", "network", "denied"),
    [
        ("touch: cannot touch 'x': Read-only file system", True, True),
        ("PermissionError: [Errno 13] Permission denied: '/x'", True, True),
        ("curl: (6) Could not resolve host: example.com", False, True),
        ("curl: (6) Could not resolve host: example.com", True, False),
        ("1 failed, 3 passed", False, False),
        ("", False, False),
    ],
)
def test_a_denial_is_recognised_in_the_output(output: str, network: bool, denied: bool) -> None:
    assert looks_denied(output, replace(WORKSPACE, network=network)) == denied
