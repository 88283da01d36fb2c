"""When a request reached which point, under the names of Triton's traces."""

from tribar.modelserver.scheduling.call import Call


def timestamps(call: Call, end_ns: int) -> list[tuple[str, int]]:
    """Of a call that ended at ``end_ns``: without those of the computation where it never left the queue."""
    found = [("REQUEST_START", call.enqueued_ns), ("QUEUE_START", call.enqueued_ns)]
    execution = call.execution
    if execution is not None:
        found += [
            ("COMPUTE_START", execution.start_ns),
            ("COMPUTE_INPUT_END", execution.input_end_ns),
            ("COMPUTE_OUTPUT_START", execution.output_start_ns),
            ("COMPUTE_END", execution.end_ns),
        ]
    return [*found, ("REQUEST_END", max(end_ns, found[-1][1]))]
