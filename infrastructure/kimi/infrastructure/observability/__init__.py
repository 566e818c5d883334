"""Spans and metrics of conversations, by OpenTelemetry (runtime spec 2.9). Imported only where they are switched on."""
