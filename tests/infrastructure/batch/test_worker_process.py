"""Workers that end in the wrong moment: what is said of them."""

from __future__ import annotations

import os
from contextlib import nullcontext
from pathlib import Path

import anyio
import anyio.to_thread
import pytest

from kimi.application.batch.ports import AttemptOrder, WorkerNotStarted
from kimi.application.settings.flags import Flags
from kimi.domain.batch import BatchTask
from kimi.infrastructure.batch.worker_process import WorkerProcess
from tests.support.program.processes import comes_true

pytestmark = pytest.mark.anyio


async def test_the_status_of_a_worker_is_told_that_closed_its_input_first(tmp_path: Path) -> None:
    """Its end is seen in two places: the pipe of its input breaks before its status is there."""
    closed = tmp_path / "closed"
    code = f"import os, time; os.close(0); open({str(closed)!r}, 'w').close(); time.sleep(0.5); os._exit(7)"
    worker = WorkerProcess(["-c", code], os.environ)
    order = AttemptOrder(BatchTask("one", "go", "d"), str(tmp_path), Flags(work_dir=str(tmp_path)))
    with anyio.fail_after(20):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(worker.serve)
            assert await anyio.to_thread.run_sync(comes_true, closed.exists, 10)
            with pytest.raises(WorkerNotStarted, match="ended with status 7 before it said anything"):
                await worker.run(order, lambda usage: None, nullcontext())
