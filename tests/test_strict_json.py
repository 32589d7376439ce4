from __future__ import annotations

import pytest

from anole.strict_json import parse_json, parse_record

MALFORMED = [b"NaN", b'{"a":Infinity}', b'{"a":', b"", b"\xff", b"\0\0\0\0", b'"\\ud800"', b"[" * 65 + b"]" * 65]


@pytest.mark.parametrize("read", [parse_json, parse_record])
@pytest.mark.parametrize("text", MALFORMED)
def test_json_is_strict(read, text: bytes) -> None:
    with pytest.raises(ValueError):
        read(text)


@pytest.mark.parametrize("text", [b"1e999", b"-1e999", b"9223372036854775808"])
def test_numbers_are_within_range(text: bytes) -> None:
    with pytest.raises(ValueError):
        parse_json(text)


def test_values_at_the_limits_are_accepted() -> None:
    assert parse_json(b"[-9223372036854775808, 1e308]") == [-(1 << 63), 1e308]
    assert parse_json(b"[" * 64 + b"]" * 64)
