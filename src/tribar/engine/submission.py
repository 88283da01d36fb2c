"""From a prepared request to the message the engine reads."""

import secrets
from collections.abc import Set as AbstractSet
from dataclasses import replace

import numpy as np

from tribar.core.ids import Uid
from tribar.core.requests import GenerateRequest, Prepared
from tribar.core.sampling.params import SamplingParams
from tribar.engine.grammar.wire_form import to_wire
from tribar.wire.messages import Submit


def submission(uid: Uid, prepared: Prepared, end_ids: AbstractSet[int], namespace: bytes, n_public: int = 0) -> Submit:
    """The Submit of a request that ``request_limits.fit`` has passed; ``prepared.ids`` and ``max_tokens`` are set.

    The first ``n_public`` ids belong to no tenant.
    """
    request = prepared.request
    assert prepared.ids is not None
    assert request.max_tokens is not None
    stop_ids = tuple(sorted({*request.stop_token_ids, *(() if request.ignore_eos else end_ids)}))
    return Submit(
        uid=uid,
        ids=np.array(prepared.ids, dtype="<i4").tobytes(),
        sampling=_sampling(request, stop_ids),
        max_tokens=request.max_tokens,
        stop_ids=stop_ids,
        wants=request.wants,
        namespace=namespace,
        public_prefix_tokens=n_public,
        tenant=request.tenant,
        priority=request.priority,
        deadline_s=request.deadline_s,
        grammar=to_wire(request.grammar),
        trace_id=request.trace_id,
    )


def _sampling(request: GenerateRequest, stop_ids: tuple[int, ...]) -> SamplingParams:
    """With a seed in any case, and with ending tokens suppressed until ``min_tokens`` are out."""
    sampling = request.sampling
    if sampling.seed is None:
        sampling = replace(sampling, seed=secrets.randbits(63))
    if sampling.min_tokens > 0:
        sampling = replace(sampling, suppressed=tuple(sorted({*sampling.suppressed, *stop_ids})))
    return sampling
