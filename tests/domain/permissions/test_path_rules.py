"""Path rules: names, roots by components, sensitive files, what reading and writing needs."""

import posixpath

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kimi.domain.permissions.path_rules import (
    EDIT_INSIDE,
    EDIT_OUTSIDE,
    NOT_SENSITIVE,
    READ_OUTSIDE,
    SENSITIVE,
    Granted,
    Refused,
    Zones,
    is_sensitive,
    name_path,
    read_access,
    within,
    write_access,
)
from kimi.domain.permissions.windows_paths import native_windows_path, plain_windows_name

ZONES = Zones(
    workspace=("/w/a",), readable=("/skills",), protected=("/home/u/.kimi/config.toml", "/home/u/.kimi/sessions")
)


def named(path: str, work_dir: str = "/w/a"):
    return name_path(path, work_dir=work_dir, home="/home/u")


@pytest.mark.spec("T-40")
@pytest.mark.parametrize(
    ("given_path", "absolute", "relative"),
    [
        ("~/x", "/home/u/x", False),
        ("~", "/home/u", False),
        ("~x", "/w/a/~x", True),
        ("~root/x", "/w/a/~root/x", True),
        ("x/~/y", "/w/a/x/~/y", True),
        ("./b/../c", "/w/a/c", True),
        ("/etc//passwd", "/etc/passwd", False),
        ("//etc/passwd", "/etc/passwd", False),
        ("..", "/w", True),
    ],
)
def test_what_a_path_means(given_path: str, absolute: str, relative: bool) -> None:
    found = named(given_path)
    assert (found.absolute, found.relative) == (absolute, relative)


@pytest.mark.spec("T-37")
def test_a_longer_name_is_not_inside() -> None:
    assert not within("/w/ab/x", ["/w/a"])
    assert within("/w/a/x", ["/w/a"])
    assert within("/w/a", ["/w/a/"])
    assert within("/anything", ["/"])
    access = write_access(named("/w/ab/x"), "/w/ab/x", "write", ZONES)
    assert access == Granted(False, EDIT_OUTSIDE)


names = st.lists(st.sampled_from(["a", "ab", "..", ".", "b"]), min_size=1, max_size=6).map("/".join)


@given(names, names)
def test_inside_means_that_the_way_down_needs_no_dots(path: str, root: str) -> None:
    path, root = posixpath.normpath("/" + path), posixpath.normpath("/" + root)
    assert within(path, [root]) == (not posixpath.relpath(path, root).startswith(".."))


@pytest.mark.parametrize(
    ("verb", "words"), [("read", "to read a file"), ("write", "to write a file"), ("edit", "to edit a file")]
)
def test_a_relative_path_that_leaves_is_refused(verb: str, words: str) -> None:
    target = named("../x")
    access = read_access(target, "/w/x", ZONES) if verb == "read" else write_access(target, "/w/x", verb, ZONES)  # pyright: ignore[reportArgumentType]
    assert access == Refused(
        f"`../x` is not an absolute path. You must provide an absolute path {words} outside the working directory.",
        "Invalid path",
    )


def test_reading_outside_follows_the_setting() -> None:
    target = named("/etc/hosts")
    assert read_access(target, "/etc/hosts", ZONES) == Granted(False)
    asked = Zones(workspace=("/w/a",), readable=("/skills",), read_outside="ask")
    assert read_access(target, "/etc/hosts", asked) == Granted(False, READ_OUTSIDE)
    assert read_access(named("/skills/x"), "/skills/x", asked) == Granted(False)
    assert read_access(named("b"), "/w/a/b", asked) == Granted(True)
    denied = Zones(workspace=("/w/a",), read_outside="deny")
    assert isinstance(read_access(target, "/etc/hosts", denied), Refused)


def test_the_real_path_decides() -> None:
    asked = Zones(workspace=("/w/a",), read_outside="ask")
    assert read_access(named("link/hosts"), "/etc/hosts", asked) == Granted(False, READ_OUTSIDE)
    assert write_access(named("link/hosts"), "/etc/hosts", "edit", asked) == Granted(False, EDIT_OUTSIDE)
    assert write_access(named("/other/b"), "/w/a/b", "edit", asked) == Granted(True, EDIT_INSIDE)


def example(pattern: str) -> str:
    return pattern.replace("*", "some")


@pytest.mark.parametrize("pattern", SENSITIVE)
def test_every_pattern_is_caught_by_either_path(pattern: str) -> None:
    secret = f"/w/a/{example(pattern)}"
    for path, real in [(secret, secret), ("/w/a/plain.txt", secret), (secret, "/w/a/plain.txt")]:
        access = read_access(named(path), real, ZONES)
        assert isinstance(access, Refused)
        assert access.brief == "Sensitive file"
    assert access_sensitive(secret)
    assert is_sensitive(secret.upper(), ZONES)


def access_sensitive(path: str) -> bool:
    access = write_access(named(path), path, "write", ZONES)
    return isinstance(access, Granted) and access.sensitive


def test_the_text_of_a_refusal_names_the_path_as_given() -> None:
    access = read_access(named("~/.ssh/id_rsa"), "/home/u/.ssh/id_rsa", ZONES)
    assert access == Refused(
        "`~/.ssh/id_rsa` appears to contain secrets (matched sensitive file pattern). "
        "Reading this file is blocked to protect credentials.",
        "Sensitive file",
    )


@pytest.mark.parametrize("name", [*NOT_SENSITIVE, "id_rsa.pub", "environment", "my.env", "credentials.md", "a.pem.txt"])
def test_exempt_and_similar_names_pass(name: str) -> None:
    assert not is_sensitive(f"/w/a/{example(name)}", ZONES)


def test_the_user_may_widen_and_narrow_the_list() -> None:
    zones = Zones(("/w/a",), sensitive=("*.secret", "/srv/keys", "vault/x"), not_sensitive=("*.pem", ".env.ci"))
    for path in ("/w/a/b.secret", "/srv/keys", "/srv/keys/any", "/w/vault/x"):
        assert is_sensitive(path, zones)
    for path in ("/w/a/srv/keys", "/w/a/cert.pem", "/w/a/.env.ci", "/w/vault/y"):
        assert not is_sensitive(path, zones)


def test_our_own_files_are_closed_but_for_the_readable_roots() -> None:
    zones = Zones(("/w/a",), ("/home/u/.kimi/sessions/h/s/spill",), protected=ZONES.protected)
    for path in ("/home/u/.kimi/config.toml", "/home/u/.kimi/sessions/h/s/context.jsonl", "/home/u/.KIMI/Config.toml"):
        assert isinstance(read_access(named(path), path, zones), Refused)
        assert isinstance(write_access(named(path), path, "write", zones), Refused)
    spilled = "/home/u/.kimi/sessions/h/s/spill/1.txt"
    assert read_access(named(spilled), spilled, zones) == Granted(False)
    assert isinstance(write_access(named(spilled), spilled, "write", zones), Refused)


@pytest.mark.parametrize("path", ["", "a\0b", "a\ud800b"])
def test_what_can_be_no_path_is_refused(path: str) -> None:
    assert isinstance(read_access(named(path), "/w/a/x", ZONES), Refused)
    assert isinstance(write_access(named(path), "/w/a/x", "write", ZONES), Refused)


@pytest.mark.parametrize(
    ("path", "native"),
    [
        ("/c/x/y", "c:\\x\\y"),
        ("/cygdrive/d/x", "d:\\x"),
        ("//server/share/x", "\\\\server\\share\\x"),
        ("/etc/hosts", "/etc/hosts"),
        ("src/a.py", "src/a.py"),
    ],
)
def test_windows_forms(path: str, native: str) -> None:
    assert native_windows_path(path) == native


def test_windows_names_and_roots() -> None:
    assert plain_windows_name(".env::$DATA") == plain_windows_name(".env. ") == ".env"
    found = name_path("/C/Work/../work/a.txt", work_dir="C:\\Work", home="C:\\Users\\u", windows=True)
    assert (found.absolute, found.relative) == ("C:\\work\\a.txt", False)
    assert within(found.absolute, ["c:\\WORK"], windows=True)
    assert is_sensitive("C:\\Work\\.ENV::$DATA", Zones(("C:\\Work",), windows=True))


@pytest.mark.parametrize(
    "path",
    [
        "C:\\Users\\u\\.kimi\\config.toml",
        "C:\\Users\\u\\.KIMI\\config.toml::$DATA",
        "C:\\Users\\u\\.kimi.\\config.toml. ",
        "\\\\?\\C:\\Users\\u\\.kimi\\config.toml",
        "\\\\.\\C:\\Users\\u\\.kimi\\config.toml",
    ],
)
def test_our_own_files_are_closed_by_every_name_that_windows_opens_them_by(path: str) -> None:
    zones = Zones(("C:\\Work",), protected=("C:\\Users\\u\\.kimi\\config.toml",), windows=True)
    target = name_path(path, work_dir="C:\\Work", home="C:\\Users\\u", windows=True)
    assert isinstance(read_access(target, path, zones), Refused)
    assert isinstance(write_access(target, path, "write", zones), Refused)


def test_a_share_by_its_long_name_is_the_same_share() -> None:
    assert within("\\\\?\\UNC\\server\\share\\x", ["\\\\server\\share"], windows=True)
    assert not within("\\\\?\\UNC\\server\\other\\x", ["\\\\server\\share"], windows=True)
