"""Events of a stream that are not what they should be."""

from __future__ import annotations

import pytest

from kimi.domain.errors import ChatProviderError
from kimi.infrastructure.models.answer_errors import parse_event_object


@pytest.mark.parametrize(
    ("sent", "text"),
    [
        (rb"\ud83d", "\ufffd"),
        (rb"a\ud83db\uDE00", "a\ufffdb\ufffd"),
        (rb"\ud83d\ude00", "\U0001f600"),
        (rb"\ud83d\ud83d\ude00", "\ufffd\U0001f600"),
        (rb"\\ud83d\ud83d", "\\ud83d\ufffd"),
        (rb"\u00e9\n\"\ud83d", 'é\n"\ufffd'),
    ],
)
def test_lone_surrogate_does_not_break_an_answer(sent: bytes, text: str) -> None:
    assert parse_event_object(b'{"text":"' + sent + b'"}') == {"text": text}


@pytest.mark.parametrize("payload", [b'{"a":"\\ud83d"', b'{"a":"\\ud8"}', b"\\ud83d", b'["\\ud83d"]'])
def test_payload_that_is_not_an_object_is_an_error(payload: bytes) -> None:
    with pytest.raises(ChatProviderError, match="not a JSON object"):
        parse_event_object(payload)
