"""Spans and metrics as a collector gets them from the program, and what they cost where they are off."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import textwrap
import time
from pathlib import Path

import pytest

from tests.support.program.acp_process import acp_process
from tests.support.program.pace import slowdown
from tests.support.program.wire_process import Place, approval
from tests.support.providers.otlp_collector import Collector, otlp_collector
from tests.support.providers.scripts import call, shell

ENABLED = "\n[observability]\nenabled = true\n"
USAGE = "usage: input_other=10 output=5 input_cache_read=100"


def observed(root: Path, collector: Collector, **environ: str) -> Place:
    """Return a place whose program sends to this collector."""
    return Place(root, {"OTEL_EXPORTER_OTLP_ENDPOINT": collector.url, **environ}, config=ENABLED)


@pytest.mark.spec("R-450", "R-451")
def test_a_turn_is_a_tree_of_spans_without_its_texts(tmp_path: Path) -> None:
    with otlp_collector() as collector:
        place = observed(tmp_path, collector)
        place.script(f"{shell('c1', 'echo the-secret-text')}\n{USAGE}", f"text: the-answer\n{USAGE}")
        with place.wire() as kimi:
            kimi.initialize()
            answered = kimi.prompt("the-prompt", lambda request: approval(request, "approve"))
            assert answered["result"] == {"status": "finished"}
            assert kimi.finish() == 0
    turn, first, second = (collector.named(name) for name in ("invoke_agent default", "step 1", "step 2"))
    tool, asked = collector.named("execute_tool Shell"), collector.named("approval")
    chats = [span for span in collector.spans if span.name == "chat test-model"]
    assert [turn.parent_id, first.parent_id, second.parent_id] == [b"", turn.span_id, turn.span_id]
    assert [tool.parent_id, asked.parent_id] == [first.span_id, tool.span_id]
    assert [chat.parent_id for chat in chats] == [first.span_id, second.span_id]
    assert {span.trace_id for span in collector.spans} == {turn.trace_id}
    assert chats[0].attributes["gen_ai.usage.input_tokens"] == 110
    assert chats[0].attributes["gen_ai.request.model"] == "test-model"
    assert tool.attributes["gen_ai.tool.call.id"] == "c1"
    assert asked.attributes["kimi.approval.response"] == "approve"
    assert turn.attributes["gen_ai.conversation.id"] == place.session_dirs()[0].name
    assert collector.service["service.name"] == "kimi"
    sent = b"".join(collector.raw)
    assert not [text for text in (b"the-secret-text", b"the-answer", b"the-prompt") if text in sent]


@pytest.mark.spec("R-452")
def test_metrics_count_tokens_and_the_success_of_tools(tmp_path: Path) -> None:
    with otlp_collector() as collector:
        place = observed(tmp_path, collector)
        place.script(
            f"{call('c1', 'ReadFile', {'path': 'missing'})}\n{USAGE}",
            f"{call('c2', 'SetTodoList', {'todos': []})}\n{USAGE}",
            f"text: ok\n{USAGE}",
        )
        with place.wire() as kimi:
            kimi.initialize()
            assert kimi.prompt("go")["result"] == {"status": "finished"}
            assert kimi.finish() == 0
    tools = collector.metrics["kimi.tool.duration"]
    assert {"gen_ai.tool.name": "ReadFile", "error.type": "tool_error"} in tools
    assert {"gen_ai.tool.name": "SetTodoList"} in tools
    assert {labels["gen_ai.token.type"] for labels in collector.metrics["gen_ai.client.token.usage"]} == {
        "input",
        "output",
    }
    assert {
        "gen_ai.client.operation.duration",
        "gen_ai.client.operation.time_to_first_chunk",
        "kimi.turn.duration",
        "kimi.session.open.duration",
        "process.memory.usage",
    } <= collector.metrics.keys()
    assert collector.bounds["gen_ai.client.operation.duration"][:3] == [0.01, 0.02, 0.04]  # of the conventions
    assert collector.bounds["kimi.tool.duration"][-1] == 81.92
    assert collector.bounds["gen_ai.client.token.usage"][-1] == 4**13


@pytest.mark.spec("R-450")
def test_a_subagent_is_a_span_inside_its_call(tmp_path: Path) -> None:
    with otlp_collector() as collector:
        place = observed(tmp_path, collector)
        arguments = {"description": "look", "prompt": "look", "subagent_type": "explore"}
        answer = "text: " + "found " * 60
        place.script(call("c1", "Agent", arguments), answer, "text: done")
        with place.wire() as kimi:
            kimi.initialize()
            assert kimi.prompt("go")["result"] == {"status": "finished"}
            assert kimi.finish() == 0
    inner = collector.named("invoke_agent explore")
    assert inner.parent_id == collector.named("execute_tool Agent").span_id
    assert [span.parent_id for span in collector.spans if span.name == "step 1"].count(inner.span_id) == 1


@pytest.mark.spec("R-450")
def test_the_turns_of_a_flow_are_inside_its_own(tmp_path: Path) -> None:
    with otlp_collector() as collector:
        place = observed(tmp_path, collector)
        place.script("text: one", "text: two <choice>STOP</choice>")
        with place.wire("--max-ralph-iterations", "1") as kimi:
            kimi.initialize()
            assert kimi.prompt("go")["result"] == {"status": "finished"}
            assert kimi.finish() == 0
    turns = [span for span in collector.spans if span.name == "invoke_agent default"]
    *inner, outer = sorted(turns, key=lambda span: span.seconds)
    assert len(inner) == 2
    assert {span.parent_id for span in inner} == {outer.span_id}
    assert outer.seconds > sum(span.seconds for span in inner)


@pytest.mark.spec("R-450")
def test_sessions_of_an_editor_have_traces_of_their_own(tmp_path: Path) -> None:
    with otlp_collector() as collector:
        place = observed(tmp_path, collector)
        place.script("text: one", "text: two")
        with acp_process(place) as kimi:
            kimi.shake_hands()
            for _ in range(2):
                assert kimi.say(kimi.new_session(place), "go")["result"]["stopReason"] == "end_turn"
            assert kimi.finish() == 0
    turns = [span for span in collector.spans if span.name == "invoke_agent default"]
    assert len({span.trace_id for span in turns}) == 2
    assert len({span.attributes["gen_ai.conversation.id"] for span in turns}) == 2


@pytest.mark.spec("R-453")
def test_a_collector_that_does_not_answer_costs_no_turn_and_little_at_the_end(tmp_path: Path) -> None:
    with socket.socket() as mute:
        mute.bind(("127.0.0.1", 0))
        mute.listen()
        place = observed(tmp_path, Collector(f"http://127.0.0.1:{mute.getsockname()[1]}"))
        place.script("text: ok")
        with place.wire() as kimi:
            kimi.initialize()
            assert kimi.prompt("go")["result"] == {"status": "finished"}
            began = time.monotonic()
            assert kimi.finish() == 0
            assert time.monotonic() - began < 2 * slowdown()


def test_metrics_can_be_left_out_for_a_collector_of_spans(tmp_path: Path) -> None:
    with otlp_collector() as collector:
        place = observed(tmp_path, collector, OTEL_METRICS_EXPORTER="none")
        place.script("text: ok")
        with place.wire() as kimi:
            kimi.initialize()
            assert kimi.prompt("go")["result"] == {"status": "finished"}
            assert kimi.finish() == 0
    assert collector.named("invoke_agent default")
    assert collector.metrics == {}


@pytest.mark.spec("R-453")
def test_keys_for_a_collector_stay_out_of_commands(tmp_path: Path) -> None:
    with otlp_collector() as collector:
        place = observed(tmp_path, collector, OTEL_EXPORTER_OTLP_HEADERS="authorization=Bearer-key-of-mine")
        place.script(shell("c1", "env"), "text: ok")
        with place.wire("--yolo") as kimi:
            kimi.initialize()
            assert kimi.prompt("go")["result"] == {"status": "finished"}
            assert kimi.finish() == 0
    assert collector.headers[0]["authorization"] == "Bearer-key-of-mine"
    assert "Bearer-key-of-mine" not in json.dumps(place.context())


@pytest.mark.spec("R-454")
def test_enabling_without_the_library_names_what_to_install(tmp_path: Path) -> None:
    hidden = tmp_path / "hidden"
    hidden.mkdir()
    (hidden / "sitecustomize.py").write_text("import sys\nsys.modules['opentelemetry'] = None\n", encoding="utf-8")
    place = Place(tmp_path, {"PYTHONPATH": str(hidden)}, config=ENABLED).script("text: ok")
    answered = place.run("--print", "--prompt", "go", cold=True)
    assert answered.returncode == 1
    assert b"kimi-wire[otel]" in answered.stdout + answered.stderr


def run_embedding_program(tmp_path: Path, program: str, *, blocked: str = "") -> subprocess.CompletedProcess[bytes]:
    """Run a program that embeds an agent whose configuration enables spans; modules below `blocked` are not there."""
    (tmp_path / "config.toml").write_text(ENABLED, encoding="utf-8")
    prelude = f"import sys\nsys.modules[{blocked!r}] = None\n" if blocked else ""
    environ = {**os.environ, "KIMI_SHARE_DIR": str(tmp_path), "HOME": str(tmp_path)}
    command = [sys.executable, "-c", prelude + EMBEDDING + textwrap.dedent(program)]
    return subprocess.run(command, cwd=tmp_path, env=environ, capture_output=True, timeout=30, check=False)


EMBEDDING = """
import asyncio
import sys
from kimi.interfaces.embed import ConfigError, open_agent, scripted_call, scripted_model
"""


@pytest.mark.spec("R-453")
def test_a_failing_span_processor_of_the_embedder_fails_no_turn(tmp_path: Path) -> None:
    done = run_embedding_program(
        tmp_path,
        """
        from opentelemetry import trace
        from opentelemetry.sdk.trace import SpanProcessor, TracerProvider

        class Failing(SpanProcessor):
            def on_start(self, span, parent_context=None):
                raise RuntimeError("start")

        provider = TracerProvider()
        provider.add_span_processor(Failing())
        trace.set_tracer_provider(provider)

        async def main():
            model = scripted_model(scripted_call("SetTodoList", todos=[]), "text: ok")
            async with open_agent(work_dir=".", model=model) as agent:
                print(await agent.ask("go"))

        asyncio.run(main())
        """,
    )
    assert (done.returncode, done.stdout) == (0, b"ok\n"), done.stderr


def test_an_embedder_needs_no_exporter_of_ours(tmp_path: Path) -> None:
    done = run_embedding_program(
        tmp_path,
        """
        async def main():
            async with open_agent(work_dir=".", model=scripted_model("text: ok")) as agent:
                print(await agent.ask("go"))

        asyncio.run(main())
        """,
        blocked="opentelemetry.exporter",
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, b"ok\n", b"")


@pytest.mark.spec("R-454")
def test_an_embedder_without_the_library_makes_no_session(tmp_path: Path) -> None:
    done = run_embedding_program(
        tmp_path,
        """
        async def main():
            try:
                async with open_agent(work_dir=".", model=scripted_model("text: ok")):
                    pass
            except ConfigError as error:
                print("kimi-wire[otel]" in str(error))

        asyncio.run(main())
        """,
        blocked="opentelemetry",
    )
    assert (done.returncode, done.stdout) == (0, b"True\n"), done.stderr
    assert not (tmp_path / "sessions").exists()
