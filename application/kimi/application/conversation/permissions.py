"""The permissions of a conversation: its policy, part of which is stored in the session state."""

from __future__ import annotations

import logging
from collections.abc import Callable, Set
from dataclasses import replace
from threading import Lock
from typing import TypeAlias

import anyio
import anyio.to_thread

from kimi.application.ports import SessionFiles
from kimi.domain.errors import StoreFailed
from kimi.domain.history.session import SessionState
from kimi.domain.permissions.approval import Policy

logger = logging.getLogger(__name__)

ChangeState: TypeAlias = Callable[[SessionState], SessionState]


def keep_state(state: SessionState) -> SessionState:
    """Return `state` unchanged."""
    return state


class Permissions:
    """The only writer of the modes and the remembered approvals, in memory and in the session state.

    A conversation and its subagents share one object, so a change applies to all of them at once. A change is stored
    first and applies afterwards: when the store raises StoreFailed, the policy is unchanged. `remember_answer` is the
    only exception. `state_lock` guards every change of the state of `files`, also changes by other writers.
    """

    def __init__(self, policy: Policy, files: SessionFiles, state_lock: Lock) -> None:
        self._policy = policy
        self._files = files
        self._state_lock = state_lock

    @property
    def policy(self) -> Policy:
        """The current policy, which decides which actions need approval."""
        return self._policy

    def switch_modes(
        self,
        *,
        yolo: bool | None = None,
        afk: bool | None = None,
        edits: bool | None = None,
        plan: bool | None = None,
        change_state: ChangeState = keep_state,
    ) -> None:
        """Switch modes in one write; None leaves a mode as it is, in memory and on disk.

        `change_state` makes other changes to the state in the same write. Raises StoreFailed.
        """
        policy = self._policy
        switched = replace(
            policy,
            yolo=policy.yolo if yolo is None else yolo,
            afk=policy.afk if afk is None else afk,
            edits=policy.edits if edits is None else edits,
            plan=policy.plan if plan is None else plan,
        )

        def apply(state: SessionState) -> SessionState:
            # From the stored state, not from the policy: a mode that a flag set is not stored by switching another.
            return replace(
                change_state(state),
                yolo=state.yolo if yolo is None else yolo,
                afk=state.afk if afk is None else afk,
                edits=state.edits if edits is None else edits,
                plan_mode=state.plan_mode if plan is None else plan,
            )

        self._store(apply, switched)

    def remember(self, key: str) -> None:
        """Approve the action with this key for the session. Raises StoreFailed."""
        self._store_remembered(self._policy.remembered | {key})

    def remember_answer(self, key: str) -> None:
        """Approve an action for the session because the user answered so, even if that cannot be stored.

        This is the exception to "store first": the client relies on later calls not asking (tools spec 5.2, T-100),
        and its answer has no response that could report a failure. An approval that is not stored holds until the
        process ends, or is stored together with the next one.
        """
        try:
            self.remember(key)
        except StoreFailed:
            logger.exception("the approval of %r holds until the process ends: it could not be stored", key)
            self._policy = replace(self._policy, remembered=self._policy.remembered | {key})

    def forget(self, keys: Set[str]) -> None:
        """Remove approvals for the session, so that these actions are asked about again. Raises StoreFailed."""
        if keys & self._policy.remembered:
            self._store_remembered(self._policy.remembered - keys)

    def restore_modes(self, policy: Policy) -> None:
        """Take the modes of `policy`, with which this session was open before in the same process.

        Nothing is stored: switched modes are stored already, and modes of a flag are stored at the first prompt.
        """
        self._policy = replace(self._policy, yolo=policy.yolo, afk=policy.afk, edits=policy.edits, plan=policy.plan)

    async def save_active_modes(self, change_state: ChangeState) -> None:
        """Store the modes that are on and the changes of `change_state`, if they are not stored yet.

        This stores the modes of a flag at the first prompt. Modes that are off are not stored: only a switch removes
        a stored mode, not a run without the flag (tools spec 5.4). Raises StoreFailed.
        """

        def apply(old: SessionState) -> SessionState:
            state = change_state(old)
            return replace(
                state,
                yolo=state.yolo or self._policy.yolo,
                afk=state.afk or self._policy.afk,
                edits=state.edits or self._policy.edits,
            )

        def save() -> None:
            # `_store` holds the lock until the policy is changed as well, so this never stores a mode that is being
            # switched off.
            with self._state_lock:
                self._files.save_state(apply(self._files.state))

        if apply(self._files.state) != self._files.state:
            with anyio.CancelScope(shield=True):
                await anyio.to_thread.run_sync(save)  # in a thread, so that other sessions do not wait for the disk

    def _store_remembered(self, remembered: frozenset[str]) -> None:
        self._store(
            lambda state: replace(state, auto_approve_actions=remembered), replace(self._policy, remembered=remembered)
        )

    def _store(self, change_state: ChangeState, policy: Policy) -> None:
        with self._state_lock:
            self._files.save_state(change_state(self._files.state))
            self._policy = policy
