"""Work that ends early when something beside it goes wrong: the client leaves, the reader stalls."""

import asyncio
from collections.abc import Coroutine
from typing import Any, NoReturn, TypeVar

from starlette.types import Receive

from tribar.core.errors import Cancelled

T = TypeVar("T")


async def run_beside(work: Coroutine[Any, Any, T], *guards: Coroutine[Any, Any, NoReturn]) -> T:
    """The result of ``work``. A guard never returns; when one raises first, ``work`` is cancelled and that is raised.

    Returns only after all of them have ended, so whatever ``work`` held has been released.
    """
    main = asyncio.create_task(work)
    others = [asyncio.create_task(guard) for guard in guards]
    try:
        await asyncio.wait((main, *others), return_when=asyncio.FIRST_COMPLETED)
        if not main.done():
            for other in others:
                if other.done():
                    other.result()
        return await main
    finally:
        for task in (main, *others):
            task.cancel()
        await asyncio.gather(main, *others, return_exceptions=True)


async def disconnected(receive: Receive) -> NoReturn:
    """Raise ``Cancelled`` when the client goes away. To be used once the body has been read."""
    while (await receive())["type"] != "http.disconnect":
        pass
    raise Cancelled("the client went away")
