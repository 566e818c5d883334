"""Which hooks match, and what the end of a command means (runtime spec 7.5)."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kimi.domain.events.request import HookAnswer
from kimi.domain.hook import (
    ALLOW,
    HOOK_EVENTS,
    MAX_REASON_CHARS,
    CommandHook,
    HookSubscription,
    clamp_timeout_s,
    combine_answers,
    count_hooks_by_event,
    deduplicate_commands,
    judge_failure,
    match_hooks,
    parse_hook_result,
)
from kimi.infrastructure.linear_regex import search_expression
from tests.support.patterns.bombs import EXPLOSIVE_EXPRESSIONS, EXPLOSIVE_TEXTS, bounded_cpu_time


def permission(decision: str, reason: str = "") -> bytes:
    """The output of a command that decides on the approval."""
    said = {"permissionDecision": decision, "permissionDecisionReason": reason}
    return json.dumps({"hookSpecificOutput": said}).encode()


def denial(**more: object) -> bytes:
    """What a command prints that denies."""
    return json.dumps({"hookSpecificOutput": {"permissionDecision": "deny", **more}}).encode()


@pytest.mark.parametrize(
    ("matcher", "target", "found"),
    [
        ("", "", True),
        ("", "anything", True),
        ("Shell|WriteFile", "WriteFile", True),
        ("Shell|WriteFile", "ReadFile", False),
        ("ell", "Shell", True),
        ("^ell", "Shell", False),
        (r"rm\s+-rf", "please rm  -rf it", True),
        ("second$", "first\nsecond", True),
        ("[", "[", False),
        ("*", "*", False),
        ("(?P<", "", False),
    ],
)
def test_a_matcher_is_searched_and_an_invalid_one_never_matches(matcher: str, target: str, found: bool) -> None:
    hook = HookSubscription("h", "Stop", matcher)
    assert match_hooks([hook], "Stop", target, search_expression) == ([hook] if found else [])
    assert match_hooks([hook], "PreToolUse", target, search_expression) == []


@given(st.text())
def test_any_text_is_accepted_as_matcher(matcher: str) -> None:
    hook = CommandHook("Stop", "true", matcher)
    found = match_hooks([hook], "Stop", "target", search_expression)
    assert not found or search_expression(matcher, "") != "invalid"


@pytest.mark.parametrize("matcher", ["^(?!ReadFile$)", r"(\w)\1", "(?<=a)b", "a" * 20_000])
def test_a_hook_fires_always_if_its_matcher_has_no_bound(matcher: str) -> None:
    hook = CommandHook("PreToolUse", "true", matcher)
    assert match_hooks([hook], "PreToolUse", "ReadFile", search_expression) == [hook]
    assert match_hooks([hook], "Stop", "ReadFile", search_expression) == []


@pytest.mark.spec("R-210")
@pytest.mark.parametrize("matcher", EXPLOSIVE_EXPRESSIONS)
def test_a_matcher_takes_time_that_grows_with_the_target_only(matcher: str) -> None:
    hook = HookSubscription("h", "UserPromptSubmit", matcher)
    with bounded_cpu_time(0.5):
        for target in EXPLOSIVE_TEXTS:
            match_hooks([hook], "UserPromptSubmit", target, search_expression)


def test_the_order_stays_and_a_command_runs_once() -> None:
    first, second, again = CommandHook("Stop", "a", "", 1), CommandHook("Stop", "b"), CommandHook("Stop", "a", "x", 9)
    assert match_hooks([first, second, again], "Stop", "x", search_expression) == [first, second, again]
    assert deduplicate_commands([first, second, again]) == [first, second]
    assert deduplicate_commands([]) == []


def test_counts_name_events_in_the_order_of_the_list() -> None:
    hooks = [HookSubscription("s", "Stop"), CommandHook("PreToolUse", "a"), CommandHook("Stop", "a")]
    assert list(count_hooks_by_event(hooks).items()) == [("PreToolUse", 1), ("Stop", 2)]
    assert len(HOOK_EVENTS) == len(set(HOOK_EVENTS)) == 13


@pytest.mark.parametrize(("asked", "given"), [(-5, 1), (0, 1), (1, 1), (30, 30), (600, 600), (601, 600), (10**9, 600)])
def test_hook_timeout_is_clamped(asked: int, given: int) -> None:
    assert clamp_timeout_s(HookSubscription("h", "Stop", "", asked)) == given
    assert clamp_timeout_s(CommandHook("Stop", "true", "", asked)) == given


@pytest.mark.parametrize(
    ("status", "output", "errors", "expected"),
    [
        (2, b"", b" no \n", HookAnswer("block", "no")),
        (2, b"", b"", HookAnswer("block", "")),
        (2, b"not this", b"caf\xc3\xa9 \xff", HookAnswer("block", "café \ufffd")),
        (0, denial(permissionDecisionReason=" not here "), b"noise", HookAnswer("block", "not here")),
        (0, b"\n " + denial(), b"", HookAnswer("block", "")),
        (0, denial(permissionDecisionReason=7), b"", HookAnswer("block", "")),
        (0, permission("allow", "known good"), b"", HookAnswer("allow", "known good", "allow")),
        (0, permission("ask"), b"", HookAnswer("allow", "", "ask")),
        (0, permission("approve"), b"", ALLOW),
        (2, permission("allow"), b"no", HookAnswer("block", "no")),
        (0, b'{"hookSpecificOutput": "deny"}', b"", ALLOW),
        (0, b'{"permissionDecision": "deny"}', b"", ALLOW),
        (0, b"{}", b"", ALLOW),
        (0, b"{", b"", None),
        (0, b"[1]", b"", ALLOW),
        (0, b"null", b"", ALLOW),
        (0, b"{" * 100_000, b"", None),
        (0, b'{"a":' * 100_000, b"", None),
        (0, b"text", b"", ALLOW),
        (0, b"", b"", ALLOW),
        (1, denial(), b"no", None),
        (127, b"", b"not found", None),
        (-9, denial(), b"", None),
    ],
)
def test_command_output_decides_the_hook_answer(
    status: int, output: bytes, errors: bytes, expected: HookAnswer | None
) -> None:
    assert parse_hook_result(status, output, errors) == expected


@given(st.integers(), st.binary(), st.binary())
def test_any_command_end_is_an_answer_or_a_failure(status: int, output: bytes, errors: bytes) -> None:
    answer = parse_hook_result(status, output, errors)
    assert (answer is not None and answer.action == "block") == (status == 2)
    assert status in (0, 2) or answer is None


def test_long_reason_is_cut() -> None:
    answer = parse_hook_result(2, b"", b"x" * 100_000)
    assert answer is not None
    assert len(answer.reason) == MAX_REASON_CHARS


@pytest.mark.spec("R-175")
def test_failure_of_a_hook_means_what_the_hook_says() -> None:
    closed = CommandHook("Stop", "check", on_failure="block")
    assert judge_failure(closed, "ended with status 3") == HookAnswer(
        "block", "The hook `check` ended with status 3, and so it blocks."
    )
    assert judge_failure(CommandHook("Stop", "check"), "ended with status 3") == ALLOW
    assert judge_failure(HookSubscription("h", "Stop"), "failed") == ALLOW


@pytest.mark.spec("R-175")
def test_command_that_stands_twice_blocks_on_failure_if_one_does() -> None:
    hooks = [CommandHook("Stop", "check"), CommandHook("Stop", "check", on_failure="block"), CommandHook("Stop", "b")]
    assert [hook.on_failure for hook in deduplicate_commands(hooks)] == ["block", "allow"]


def test_the_strongest_of_several_answers_counts() -> None:
    approve, ask = HookAnswer("allow", "fine", "allow"), HookAnswer("allow", "", "ask")
    first, second = HookAnswer("block", "a"), HookAnswer("block", "b")
    assert combine_answers([approve, ask, first, second]) == first
    assert combine_answers([approve, ALLOW, ask]) == ask
    assert combine_answers([ALLOW, approve]) == approve
    assert combine_answers([HookAnswer("allow", "words")]) == combine_answers([]) == ALLOW
