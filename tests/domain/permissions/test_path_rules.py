"""Path rules: names, roots by components, sensitive files, what reading and writing needs."""

import posixpath
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kimi.domain.permissions.file_patterns import (
    NOT_SENSITIVE_PATTERNS,
    NOT_SENSITIVE_SYSTEM_PATTERNS,
    PROTECTED_PATTERNS,
    SENSITIVE_PATTERNS,
    SENSITIVE_SYSTEM_PATTERNS,
)
from kimi.domain.permissions.path_rules import (
    EDIT_INSIDE,
    EDIT_OUTSIDE,
    EDIT_PROTECTED,
    READ_OUTSIDE,
    PathAllowed,
    PathDenied,
    PathScopes,
    check_read_access,
    check_write_access,
    interpret_path,
    is_sensitive,
    is_within,
)
from kimi.domain.permissions.windows_paths import canonicalise_windows_name, to_native_windows_path
from tests.support.file_tools import example_path
from tests.support.program.pace import slowdown

ZONES = PathScopes(
    workspace=("/w/a",), readable=("/skills",), protected=("/home/u/.kimi/config.toml", "/home/u/.kimi/sessions")
)


def named(path: str, work_dir: str = "/w/a"):
    return interpret_path(path, work_dir=work_dir, home="/home/u")


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
def test_given_path_becomes_absolute_and_keeps_its_relative_flag(
    given_path: str, absolute: str, relative: bool
) -> None:
    found = named(given_path)
    assert (found.absolute, found.is_relative) == (absolute, relative)


@pytest.mark.spec("T-37")
def test_a_longer_name_is_not_inside() -> None:
    assert not is_within("/w/ab/x", ["/w/a"])
    assert is_within("/w/a/x", ["/w/a"])
    assert is_within("/w/a", ["/w/a/"])
    assert is_within("/anything", ["/"])
    access = check_write_access(named("/w/ab/x"), "/w/ab/x", "write", ZONES)
    assert access == PathAllowed(False, EDIT_OUTSIDE)


names = st.lists(st.sampled_from(["a", "ab", "..", ".", "b"]), min_size=1, max_size=6).map("/".join)


@given(names, names)
def test_path_is_inside_if_its_relative_path_has_no_dots(path: str, root: str) -> None:
    path, root = posixpath.normpath("/" + path), posixpath.normpath("/" + root)
    assert is_within(path, [root]) == (not posixpath.relpath(path, root).startswith(".."))


@pytest.mark.parametrize(
    ("verb", "words"), [("read", "to read a file"), ("write", "to write a file"), ("edit", "to edit a file")]
)
def test_relative_path_leaving_the_work_dir_is_refused(verb: str, words: str) -> None:
    target = named("../x")
    if verb == "read":
        access = check_read_access(target, "/w/x", ZONES)
    else:
        access = check_write_access(target, "/w/x", verb, ZONES)  # pyright: ignore[reportArgumentType]
    assert access == PathDenied(
        f"`../x` is not an absolute path. You must provide an absolute path {words} outside the working directory.",
        "Invalid path",
    )


def test_reading_outside_follows_the_setting() -> None:
    target = named("/etc/hosts")
    assert check_read_access(target, "/etc/hosts", ZONES) == PathAllowed(False)
    asked = PathScopes(workspace=("/w/a",), readable=("/skills",), read_outside="ask")
    assert check_read_access(target, "/etc/hosts", asked) == PathAllowed(False, READ_OUTSIDE)
    assert check_read_access(named("/skills/x"), "/skills/x", asked) == PathAllowed(False)
    assert check_read_access(named("b"), "/w/a/b", asked) == PathAllowed(True)
    denied = PathScopes(workspace=("/w/a",), read_outside="deny")
    assert isinstance(check_read_access(target, "/etc/hosts", denied), PathDenied)


def test_access_is_decided_by_the_real_path() -> None:
    asked = PathScopes(workspace=("/w/a",), read_outside="ask")
    assert check_read_access(named("link/hosts"), "/etc/hosts", asked) == PathAllowed(False, READ_OUTSIDE)
    assert check_write_access(named("link/hosts"), "/srv/hosts", "edit", asked) == PathAllowed(False, EDIT_OUTSIDE)
    assert check_write_access(named("/other/b"), "/w/a/b", "edit", asked) == PathAllowed(True, EDIT_INSIDE)


@pytest.mark.spec("R-207")
@pytest.mark.parametrize("pattern", [*SENSITIVE_PATTERNS, *SENSITIVE_SYSTEM_PATTERNS])
def test_sensitive_pattern_matches_given_or_real_path(pattern: str) -> None:
    secret = example_path(pattern) if pattern.startswith("/") else f"/w/a/{example_path(pattern)}"
    for path, real in [(secret, secret), ("/w/a/plain.txt", secret), (secret, "/w/a/plain.txt")]:
        access = check_read_access(named(path), real, ZONES)
        assert isinstance(access, PathDenied)
        assert access.brief == "Sensitive file"
    assert access_sensitive(secret)
    assert is_sensitive(secret.upper(), ZONES)


def access_sensitive(path: str) -> bool:
    access = check_write_access(named(path), path, "write", ZONES)
    return isinstance(access, PathAllowed) and access.is_sensitive


def test_the_text_of_a_refusal_names_the_path_as_given() -> None:
    access = check_read_access(named("~/.ssh/id_rsa"), "/home/u/.ssh/id_rsa", ZONES)
    assert access == PathDenied(
        "`~/.ssh/id_rsa` appears to contain secrets (matched sensitive file pattern). "
        "Reading this file is blocked to protect credentials.",
        "Sensitive file",
    )


@pytest.mark.parametrize(
    "name", [*NOT_SENSITIVE_PATTERNS, "id_rsa.pub", "environment", "my.env", "credentials.md", "a.pem.txt"]
)
def test_exempt_and_similar_names_pass(name: str) -> None:
    assert not is_sensitive(f"/w/a/{example_path(name)}", ZONES)


def test_the_user_may_widen_and_narrow_the_list() -> None:
    zones = PathScopes(("/w/a",), sensitive=("*.secret", "/srv/keys", "vault/x"), not_sensitive=("*.pem", ".env.ci"))
    for path in ("/w/a/b.secret", "/srv/keys", "/srv/keys/any", "/w/vault/x"):
        assert is_sensitive(path, zones)
    for path in ("/w/a/srv/keys", "/w/a/cert.pem", "/w/a/.env.ci", "/w/vault/y"):
        assert not is_sensitive(path, zones)


@pytest.mark.spec("R-201")
def test_own_files_are_closed_but_for_opened_folders_whatever_a_root_says() -> None:
    opened = ("/home/u/.kimi/sessions/h/s/spill",)
    zones = PathScopes(("/w/a",), readable=("/", "/home/u"), protected=ZONES.protected, opened=opened)
    for path in ("/home/u/.kimi/config.toml", "/home/u/.kimi/sessions/h/s/context.jsonl", "/home/u/.KIMI/Config.toml"):
        assert isinstance(check_read_access(named(path), path, zones), PathDenied)
        assert isinstance(check_write_access(named(path), path, "write", zones), PathDenied)
    spilled = "/home/u/.kimi/sessions/h/s/spill/1.txt"
    assert check_read_access(named(spilled), spilled, zones) == PathAllowed(False)
    assert isinstance(check_write_access(named(spilled), spilled, "write", zones), PathDenied)


@pytest.mark.parametrize(
    "name",
    [*NOT_SENSITIVE_SYSTEM_PATTERNS, "/proc/cpuinfo", "/sys/class/net", "/etc/hosts", "/w/src/locales/auth.json"],
)
def test_plain_files_of_the_system_are_not_sensitive(name: str) -> None:
    assert not is_sensitive(example_path(name), ZONES)


def test_nothing_below_an_exempt_name_is_exempt() -> None:
    assert is_sensitive("/home/u/.ssh/config/id_rsa", ZONES)
    assert is_sensitive("/home/u/.ssh/known_hosts/deploy", ZONES)


@pytest.mark.spec("R-206")
@pytest.mark.parametrize("pattern", PROTECTED_PATTERNS)
def test_a_change_of_a_protected_file_has_an_action_of_its_own(pattern: str) -> None:
    path = example_path(pattern) if pattern.startswith(("/", "C:")) else f"/w/a/{example_path(pattern)}"
    if path.startswith("C:"):
        path = f"/{path}"
    for given_path, real in ((path, path), ("/w/a/plain.txt", path), (path, "/w/a/plain.txt"), (path, path.upper())):
        access = check_write_access(named(given_path), real, "write", ZONES)
        assert isinstance(access, PathAllowed)
        assert (access.action, access.is_protected) == (EDIT_PROTECTED, True)


@pytest.mark.parametrize(
    "name",
    [
        *(".gitignore", ".github/README.md", "src/git/config.py", "docs/agents.md.txt", "Makefile", "package.json"),
        *(".claude/worktrees/x/src/a.py", ".kimi/plans/plan.md", ".vscode/snippets.txt", "src/profile.py"),
    ],
)
def test_other_files_of_a_project_are_plain(name: str) -> None:
    access = check_write_access(named(f"/w/a/{name}"), f"/w/a/{name}", "edit", ZONES)
    assert access == PathAllowed(True, EDIT_INSIDE)


@pytest.mark.parametrize(
    "name", [".g\u200cit/config", "agents\u200b.md/../AGENTS\ufeff.md", ".GIT/hooks/x", "GIT~1/config"]
)
def test_other_spellings_of_a_protected_name_are_protected(name: str) -> None:
    target = named(f"/w/a/{name}")
    access = check_write_access(target, target.absolute, "write", ZONES)
    assert isinstance(access, PathAllowed)
    assert access.is_protected


@pytest.mark.spec("R-207")
def test_a_hundred_thousand_paths_are_judged_quickly() -> None:
    paths = [f"/home/u/project/src/module{number % 90}/sub.d/file_{number}.test.tsx" for number in range(100_000)]
    bound = 5 * slowdown()
    begun = time.perf_counter()
    assert not any(is_sensitive(path, ZONES) for path in paths)
    assert time.perf_counter() - begun < bound


@pytest.mark.parametrize(
    "path",
    [
        "/w/" + "a" * 100_000,
        "/w/x/y" + "z" * 50_000 + "/" + "k" * 50_000,
        "/w" + "/.ssh" * 20_000,
        "/w/" + "." * 100_000,
    ],
    ids=["name", "path", "components", "dots"],
)
def test_patterns_with_many_stars_take_linear_time(path: str) -> None:
    scopes = PathScopes(("/w",), sensitive=("*a*a*a*a*a*a*a*a*a*a*a*a*a*b", "x*/*y*z*z*z*z*q/*k*k*k*k*k*k*k*m"))
    bound = 3 * slowdown()
    begun = time.perf_counter()
    is_sensitive(path, scopes)
    assert time.perf_counter() - begun < bound


@pytest.mark.parametrize("path", ["", "a\0b", "a\ud800b"])
def test_invalid_path_is_refused(path: str) -> None:
    assert isinstance(check_read_access(named(path), "/w/a/x", ZONES), PathDenied)
    assert isinstance(check_write_access(named(path), "/w/a/x", "write", ZONES), PathDenied)


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
def test_windows_path_forms_are_normalised(path: str, native: str) -> None:
    assert to_native_windows_path(path) == native


def test_windows_names_and_roots_are_matched() -> None:
    assert canonicalise_windows_name(".env::$DATA") == canonicalise_windows_name(".env. ") == ".env"
    found = interpret_path("/C/Work/../work/a.txt", work_dir="C:\\Work", home="C:\\Users\\u", windows=True)
    assert (found.absolute, found.is_relative) == ("C:\\work\\a.txt", False)
    assert is_within(found.absolute, ["c:\\WORK"], windows=True)
    assert is_sensitive("C:\\Work\\.ENV::$DATA", PathScopes(("C:\\Work",), windows=True))


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
def test_program_files_are_protected_under_all_windows_names(path: str) -> None:
    zones = PathScopes(("C:\\Work",), protected=("C:\\Users\\u\\.kimi\\config.toml",), windows=True)
    target = interpret_path(path, work_dir="C:\\Work", home="C:\\Users\\u", windows=True)
    assert isinstance(check_read_access(target, path, zones), PathDenied)
    assert isinstance(check_write_access(target, path, "write", zones), PathDenied)


def test_long_unc_name_of_a_share_is_the_same_share() -> None:
    assert is_within("\\\\?\\UNC\\server\\share\\x", ["\\\\server\\share"], windows=True)
    assert not is_within("\\\\?\\UNC\\server\\other\\x", ["\\\\server\\share"], windows=True)
