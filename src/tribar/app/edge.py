"""What stands between the network and the model, from the settings: limits, keys, and what tenants share."""

import os
from collections.abc import MutableMapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Self

from tribar.app.allowances import read_rules
from tribar.app.api_keys import ApiKeys, keys_from
from tribar.app.config import CacheConfig, LimitingConfig, ServeConfig, StoresConfig
from tribar.app.files import read_text
from tribar.app.http_connection import ConnectionLimits
from tribar.core.errors import InvalidRequest
from tribar.gateway.config import GatewayConfig
from tribar.gateway.limits.rules import Rule


@dataclass(frozen=True, slots=True, kw_only=True)
class Edge:
    """``keys`` None lets everybody in; ``public_prefix`` is the text whose KV all tenants share, empty for none.

    ``rules`` limit what requests may use, as ``limiting`` says, counted in ``stores``. ``cache`` says what is answered
    without a model.
    """

    connections: ConnectionLimits = field(default_factory=ConnectionLimits)
    gateway: GatewayConfig = field(default_factory=GatewayConfig)
    keys: ApiKeys | None = None
    public_prefix: str = ""
    stores: StoresConfig = field(default_factory=StoresConfig)
    limiting: LimitingConfig = field(default_factory=LimitingConfig)
    rules: tuple[Rule, ...] = ()
    cache: CacheConfig = field(default_factory=CacheConfig)

    @classmethod
    def of(cls, config: ServeConfig, max_connections: int, environ: MutableMapping[str, str] = os.environ) -> Self:
        """The edge that ``config`` describes. Reads its files. Raises ``InvalidRequest`` naming what is wrong."""
        server = config.server
        return cls(
            connections=ConnectionLimits(max_connections=max_connections, stall_s=server.stall_timeout_s),
            gateway=GatewayConfig(
                max_body_bytes=server.max_body_bytes,
                ping_interval_s=server.ping_interval_s,
                stall_timeout_s=server.stall_timeout_s,
                cors_origins=server.cors_origins or (),
            ),
            keys=keys_from(server.api_keys_file, environ),
            public_prefix="" if server.public_prefix is None else _public_prefix(Path(server.public_prefix)),
            stores=config.stores,
            limiting=config.limiting,
            cache=config.cache,
            rules=tuple(read_rules(config.lists.get("limits", ()))),
        )


def _public_prefix(path: Path) -> str:
    """Editors end files with a line feed, which is no part of anybody's prompt."""
    text = read_text(path, "public_prefix").rstrip("\r\n")
    if not text:
        raise InvalidRequest(f"{path}: the file is empty", param="public_prefix")
    return text
