"""The two generating endpoints of the OpenAI API."""

from tribar.gateway.endpoint import Dialect
from tribar.gateway.openai.chat import ChatBody, chat_call
from tribar.gateway.openai.chat_writer import ChatWriter
from tribar.gateway.openai.completion_writer import CompletionWriter
from tribar.gateway.openai.completions import CompletionBody, completion_call, n_prompts

CHAT = Dialect("chatcmpl-", ChatBody, chat_call, ChatWriter)
COMPLETIONS = Dialect("cmpl-", CompletionBody, completion_call, CompletionWriter, n_prompts=n_prompts)
