"""Events of a stream that are not what they should be."""

from __future__ import annotations

import pytest

from kimi.domain.errors import ChatProviderError
from kimi.infrastructure.models.answer_errors import event_object


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
def test_half_a_character_does_not_spoil_an_answer(sent: bytes, text: str) -> None:
    assert event_object(b'{"text":"' + sent + b'"}') == {"text": text}


@pytest.mark.parametrize("payload", [b'{"a":"\\ud83d"', b'{"a":"\\ud8"}', b"\\ud83d", b'["\\ud83d"]'])
def test_what_is_no_object_stays_an_error(payload: bytes) -> None:
    with pytest.raises(ChatProviderError, match="not a JSON object"):
        event_object(payload)
