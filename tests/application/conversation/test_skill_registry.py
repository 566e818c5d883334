"""When the skills of a conversation are loaded (runtime spec 7.3)."""

from __future__ import annotations

import threading
from collections.abc import Sequence

import anyio
import pytest

from kimi.application.conversation.skill_registry import SkillRegistry
from kimi.domain.skills.skill import Skill

pytestmark = pytest.mark.anyio


@pytest.mark.spec("R-204")
async def test_skills_load_in_a_thread_once() -> None:
    released, loads = threading.Event(), list[int]()

    def load() -> Sequence[Skill]:
        loads.append(threading.get_ident())
        assert released.wait(30), "the event loop stood still"
        return [Skill("b", "", "/b", "User"), Skill("A", "", "/a", "User")]

    registry = SkillRegistry(load)
    with anyio.fail_after(60):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(registry.load)
            await anyio.sleep(0.05)
            released.set()
    await registry.load()
    assert [skill.name for skill in registry.skills] == ["A", "b"]
    assert len(loads) == 1
    assert loads[0] != threading.get_ident()
