"""Reading one value: text and typed values, good and bad."""

import pytest

from tribar.app.option_kinds import Choice, Integer, Kind, Number, Origin, Size, Switch, Text, Texts, format_size


@pytest.mark.parametrize(
    ("kind", "text", "value"),
    [
        (Integer(1, 9000), "4096", 4096),
        (Integer(1, 9000), "4_096", 4096),
        (Number(0, 10), "2.5", 2.5),
        (Number(0, 10), "3", 3.0),
        (Choice(("a", "b")), "b", "b"),
        (Switch(), "Yes", True),
        (Switch(), "0", False),
        (Size(), "1024", 1024),
        (Size(), "4G", 4_000_000_000),
        (Size(), "1.5GiB", 3 << 29),
        (Size(), "512 mib", 512 << 20),
        (Size(), "7b", 7),
        (Texts("ORIGINS", Origin()), "*", ("*",)),
        (
            Texts("ORIGINS", Origin()),
            "https://a.example, http://[::1]:80,app://x",
            ("https://a.example", "http://[::1]:80", "app://x"),
        ),
        (Text(), "a b", "a b"),
    ],
)
def test_text_is_read(kind: Kind, text: str, value: object) -> None:
    read = kind.parse(text)
    assert read == value
    assert type(read) is type(value)


@pytest.mark.parametrize(
    ("kind", "text"),
    [
        (Integer(1, 9), "0"),
        (Integer(1, 9), "10"),
        (Integer(1, 9), "1.0"),
        (Integer(1, 9), ""),
        (Integer(1, 9), "9" * 5000),
        (Number(0, 1), "nan"),
        (Number(0, 1), "inf"),
        (Number(0, 1), "1.1"),
        (Number(0, 1), "one"),
        (Choice(("a", "b")), "A"),
        (Switch(), "maybe"),
        (Size(), "0"),
        (Size(), "-1"),
        (Size(), "4XB"),
        (Size(), "1ib"),
        (Size(), "9999999T"),
        (Size(1, 5), "6"),
        (Texts("ORIGINS", Origin()), ""),
        (Texts("ORIGINS", Origin()), "a.example"),
        (Texts("ORIGINS", Origin()), "https://a.example/"),
        (Texts("ORIGINS", Origin()), "https://A.example"),
        (Texts("ORIGINS", Origin()), "https://a.example https://b.example"),
        (Text(), "  "),
        (Text(), "a\nb"),
    ],
)
def test_bad_text_is_refused_saying_what_was_expected(kind: Kind, text: str) -> None:
    with pytest.raises(ValueError, match="expected"):
        kind.parse(text)


@pytest.mark.parametrize(
    ("kind", "value"),
    [
        (Integer(0, 9), True),
        (Integer(0, 9), "3"),
        (Integer(0, 9), 3.0),
        (Number(0, 9), True),
        (Number(0, 9), float("nan")),
        (Number(0, 9), "3"),
        (Choice(("a",)), 1),
        (Switch(), 1),
        (Switch(), "true"),
        (Size(), True),
        (Size(), 1.5),
        (Texts("ORIGINS", Origin()), 1),
        (Texts("ORIGINS", Origin()), [1]),
        (Size(), 2**63),
        (Text(), 3),
    ],
)
def test_a_value_of_another_type_is_refused(kind: Kind, value: object) -> None:
    with pytest.raises(ValueError, match="expected"):
        kind.check(value)


@pytest.mark.parametrize(
    ("n_bytes", "text"), [(0, "0 B"), (1023, "1023 B"), (1536, "1.5 KiB"), (9 << 30, "9 GiB"), (1000 << 20, "1000 MiB")]
)
def test_sizes_are_printed_for_people(n_bytes: int, text: str) -> None:
    assert format_size(n_bytes) == text


def test_printed_sizes_can_be_read_back() -> None:
    for n_bytes in (1, 1000, 1 << 20, 123 << 30):
        assert abs(Size().parse(format_size(n_bytes)) - n_bytes) <= n_bytes * 0.01
