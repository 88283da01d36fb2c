"""A call's arguments are the model's own text."""

import pytest

from tribar.gateway.openai.reading.call_object import CallObject

ARGUMENTS = f'{{"id": {10**30}, "x":1.10, "y": 1E5}}'


@pytest.mark.parametrize(
    "text", [f'{{"name": "f", "arguments": {ARGUMENTS}}}', f'{{"arguments":{ARGUMENTS},"name":"f"}}']
)
@pytest.mark.parametrize("step", [1, 7, 1000])
def test_numbers_are_passed_on_as_they_were_written(text: str, step: int) -> None:
    reader, taken = CallObject(frozenset({"arguments"})), ""
    for start in range(0, len(text), step):
        reader.push(text[start : start + step])
        taken += reader.take_arguments()
    assert (reader.name, taken) == ("f", ARGUMENTS)
