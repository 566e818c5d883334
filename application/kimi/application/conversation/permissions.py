"""The permissions of a conversation: its policy, and what the session state stores of it."""

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
    """Change nothing."""
    return state


class Permissions:
    """The only writer of the modes and the remembered approvals, in memory and in the session state.

    A conversation and its subagents share one, so a change counts for all of them at once. A change is stored first
    and counts when it is stored: when the store raises StoreFailed, the policy is unchanged. `remember_answer` is the
    one exception. `state_lock` guards every change of the state of `files`, also those of others.
    """

    def __init__(self, policy: Policy, files: SessionFiles, state_lock: Lock) -> None:
        self._policy = policy
        self._files = files
        self._state_lock = state_lock

    @property
    def policy(self) -> Policy:
        """What may be done, as it stands now."""
        return self._policy

    def switch_modes(
        self,
        *,
        yolo: bool | None = None,
        afk: bool | None = None,
        plan: bool | None = None,
        change_state: ChangeState = keep_state,
    ) -> None:
        """Switch modes in one write; None leaves a mode as it is, in memory and on disk.

        `change_state` changes what else is stored with the switch. Raises StoreFailed.
        """
        policy = self._policy
        switched = replace(
            policy,
            yolo=policy.yolo if yolo is None else yolo,
            afk=policy.afk if afk is None else afk,
            plan=policy.plan if plan is None else plan,
        )

        def apply(state: SessionState) -> SessionState:
            # Not the modes of the policy: those of a flag are not stored by the switch of another one.
            return replace(
                change_state(state),
                yolo=state.yolo if yolo is None else yolo,
                afk=state.afk if afk is None else afk,
                plan_mode=state.plan_mode if plan is None else plan,
            )

        self._store(apply, switched)

    def remember(self, key: str) -> None:
        """Approve an action for the session. Raises StoreFailed."""
        self._store_remembered(self._policy.remembered | {key})

    def remember_answer(self, key: str) -> None:
        """Approve an action because the user has answered so, also where that cannot be stored.

        The exception to "disk first": the client is promised that later calls do not ask (tools spec 5.2, T-100), and
        its answer has no response that could tell of a failure. What is not stored holds until the process ends, or
        is stored together with the next approval.
        """
        try:
            self.remember(key)
        except StoreFailed:
            logger.exception("the approval of %r holds until the process ends: it could not be stored", key)
            self._policy = replace(self._policy, remembered=self._policy.remembered | {key})

    def forget(self, keys: Set[str]) -> None:
        """Ask again about actions that were approved for the session. Raises StoreFailed."""
        if keys & self._policy.remembered:
            self._store_remembered(self._policy.remembered - keys)

    def restore_modes(self, policy: Policy) -> None:
        """Take the modes that `policy` has; the session was open with it before in this process.

        The disk is not touched: it holds what was switched, and modes of a flag are not stored before a prompt.
        """
        self._policy = replace(self._policy, yolo=policy.yolo, afk=policy.afk, plan=policy.plan)

    async def save_active_modes(self, change_state: ChangeState) -> None:
        """Store the modes that are on, and what `change_state` changes, if that is not stored yet. Raises StoreFailed.

        Modes of a flag are stored so at the first prompt. Those that are off are left alone: only a switch takes back
        what is stored, not a run that lacks the flag (tools spec 5.4).
        """

        def apply(old: SessionState) -> SessionState:
            state = change_state(old)
            return replace(state, yolo=state.yolo or self._policy.yolo, afk=state.afk or self._policy.afk)

        def save() -> None:
            # The lock is held from disk to memory by a switch as well, so this never stores a mode that is being
            # switched off.
            with self._state_lock:
                self._files.save_state(apply(self._files.state))

        if apply(self._files.state) != self._files.state:
            with anyio.CancelScope(shield=True):
                await anyio.to_thread.run_sync(save)  # other sessions do not wait for the disk

    def _store_remembered(self, remembered: frozenset[str]) -> None:
        self._store(
            lambda state: replace(state, auto_approve_actions=remembered), replace(self._policy, remembered=remembered)
        )

    def _store(self, change_state: ChangeState, policy: Policy) -> None:
        with self._state_lock:
            self._files.save_state(change_state(self._files.state))
            self._policy = policy
