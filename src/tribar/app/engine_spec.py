"""From resolved settings to what an engine is told."""

import time

from tribar.app.model import OpenedModel
from tribar.app.resolve import ResolvedConfig
from tribar.engine.grammar.vocabulary import Vocabulary
from tribar.engine.spec import EngineSpec


def engine_spec(resolved: ResolvedConfig, opened: OpenedModel, *, grace_s: float) -> EngineSpec:
    """The spec of the engine that runs ``opened`` as ``resolved``, draining for ``grace_s`` when it is stopped."""
    tokenizer = opened.text.tokenizer
    return EngineSpec(
        name=resolved.name,
        runner=resolved.runner,
        runner_config=resolved.runner_config,
        scheduler=resolved.scheduler_config,
        architecture=opened.architecture,
        has_chat_template=opened.has_chat_template,
        tool_format=opened.tool_format,
        reasoning_format=opened.reasoning_format,
        created_s=int(time.time()),
        grace_s=grace_s,
        vocabulary=Vocabulary(tuple(tokenizer.token_bytes), tokenizer.special_ids, frozenset(opened.text.end_ids)),
    )
