from tribar.core.errors import InvalidRequest
from tribar.modelserver.model_config import positioned
from tribar.modelserver.model_config.positions import field_positions

TEXT = """name: "m" # here
input [
  { name: "a" 'b'; dims: [ 3, -1 ] },
  { name: "c", dims: 4
    dims: 5 }
]
input: < reshape { shape: [] } optional: true >
dynamic_batching { preferred_batch_size: 4 preferred_batch_size: [ 8 ] }
parameters { key: "k" value { string_value: "v" } }
"""


def test_every_field_has_its_line_and_column() -> None:
    positions = field_positions(TEXT)
    assert {path: positions[path] for path in POSITIONS} == POSITIONS


POSITIONS = {
    "name": (1, 1),
    "input": (2, 1),
    "input[0]": (3, 3),
    "input[0].name": (3, 5),
    "input[0].dims": (3, 20),
    "input[0].dims[0]": (3, 28),
    "input[0].dims[1]": (3, 31),
    "input[1]": (4, 3),
    "input[1].dims[0]": (4, 16),
    "input[1].dims[1]": (5, 5),
    "input[2]": (7, 1),
    "input[2].reshape.shape": (7, 20),
    "input[2].optional": (7, 32),
    "dynamic_batching.preferred_batch_size[0]": (8, 20),
    "dynamic_batching.preferred_batch_size[1]": (8, 68),
    "parameters[0].value.string_value": (9, 31),
}


def test_a_missing_field_is_placed_at_what_it_belongs_to() -> None:
    error = positioned(InvalidRequest("why", param="input[1].data_type"), TEXT, file="f")
    assert (error.message, error.param) == ("f:4:3: why", "input[1].data_type")
    assert isinstance(error, InvalidRequest)
    assert positioned(InvalidRequest("why", param="output[0].dims[2]"), TEXT, file="f").message == "f: why"
    assert positioned(InvalidRequest("why"), TEXT.encode(), file="f").message == "f: why"
