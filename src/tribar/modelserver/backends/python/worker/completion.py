"""``auto_complete_config``: what a model says about its own configuration."""

from tribar.modelserver.backends.python.messages import Complete, Ready
from tribar.modelserver.backends.python.worker.api.model_config import ModelConfig
from tribar.modelserver.backends.python.worker.api.module import install_offline
from tribar.modelserver.backends.python.worker.failure import describe
from tribar.modelserver.backends.python.worker.loading import load_model_class


def complete(message: Complete) -> Ready:
    """The configuration as the model's class wants it, unchanged where it has nothing to say."""
    install_offline(message.path)
    try:
        model_class = load_model_class(message.path)
        ask = getattr(model_class, "auto_complete_config", None)
        if ask is None:
            return Ready(config=message.config)
        config = ModelConfig(message.config)
        answer = ask(config)
    except BaseException as error:
        return Ready(error=describe(error))
    if not isinstance(answer, ModelConfig):
        name = config.as_dict().get("name", "")
        return Ready(
            error=f"auto_complete_config function in model '{name}' must return a valid pb.ModelConfig object."
        )
    return Ready(config=answer.to_json())
