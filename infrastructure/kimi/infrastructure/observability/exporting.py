"""Send spans and metrics of the program's own process to a collector, over OTLP (runtime spec 2.9)."""

from __future__ import annotations

import atexit
import threading
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from opentelemetry.sdk.metrics import MeterProvider
    from opentelemetry.sdk.trace import TracerProvider

MAX_END_S: Final = 0.5
"""How long the end of the process waits for a collector."""

_exporting: Final[list[TracerProvider]] = []
"""What `start_exporting` has made."""


def start_exporting(version: str, environ: Mapping[str, str]) -> None:
    """Send what is observed from now on, in threads of the library. Its variables `OTEL_*` say where to and how.

    The program has one process-wide provider of each kind, so this is called once. Raises ImportError: the extra is not
    installed. A program that embeds the agent may have other exporters than those.
    """
    from opentelemetry import metrics, trace
    from opentelemetry.exporter.otlp.proto.http.metric_exporter import OTLPMetricExporter
    from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
    from opentelemetry.sdk.metrics import MeterProvider
    from opentelemetry.sdk.metrics.export import PeriodicExportingMetricReader
    from opentelemetry.sdk.resources import Resource
    from opentelemetry.sdk.trace import TracerProvider
    from opentelemetry.sdk.trace.export import BatchSpanProcessor

    resource = Resource.create(_name_service(version, environ))
    tracers = TracerProvider(resource=resource, shutdown_on_exit=False)
    if environ.get("OTEL_TRACES_EXPORTER") != "none":
        tracers.add_span_processor(BatchSpanProcessor(OTLPSpanExporter()))
    is_measured = environ.get("OTEL_METRICS_EXPORTER") != "none"
    readers = [PeriodicExportingMetricReader(OTLPMetricExporter())] if is_measured else []
    meters = MeterProvider(readers, resource, shutdown_on_exit=False)
    _exporting.append(tracers)
    trace.set_tracer_provider(tracers)
    metrics.set_meter_provider(meters)
    atexit.register(_shut_down, tracers, meters)


def flush_spans() -> None:
    """Send the spans that have ended, for at most `MAX_END_S`; a program that embeds the agent sends its own."""
    if _exporting:
        _run_bounded(_exporting[0].force_flush)


def _shut_down(tracers: TracerProvider, meters: MeterProvider) -> None:
    def end() -> None:
        meters.shutdown()
        tracers.shutdown()

    _run_bounded(end)


def _run_bounded(work: Callable[[], object]) -> None:
    """Call `work`, which may wait for a collector that does not answer, in a thread that is left behind then."""
    thread = threading.Thread(target=work, daemon=True)
    thread.start()
    thread.join(MAX_END_S)


def _name_service(version: str, environ: Mapping[str, str]) -> dict[str, str]:
    named = {"service.version": version}
    if not environ.get("OTEL_SERVICE_NAME") and "service.name=" not in environ.get("OTEL_RESOURCE_ATTRIBUTES", ""):
        named["service.name"] = "kimi"
    return named
