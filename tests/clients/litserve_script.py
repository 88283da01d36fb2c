"""Says the words of the last message again: ``python litserve_script.py PORT``, in LitServe's own environment."""

import sys
from collections.abc import Iterator
from typing import Any

import litserve  # type: ignore[import-not-found]


class Echo(litserve.LitAPI):  # type: ignore[misc]
    def setup(self, device: str) -> None:
        pass

    def predict(self, request: Any) -> Iterator[str]:
        for word in request.messages[-1].content.split():
            yield word + " "


if __name__ == "__main__":
    server = litserve.LitServer(Echo(spec=litserve.OpenAISpec()), accelerator="cpu")
    server.run(host="127.0.0.1", port=int(sys.argv[1]), generate_client_file=False)
