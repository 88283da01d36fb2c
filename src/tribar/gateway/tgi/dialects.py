"""The generating routes of text-generation-inference."""

from tribar.gateway.endpoint import Dialect
from tribar.gateway.tgi.call import compat_call, generate_call, generate_stream_call
from tribar.gateway.tgi.fields import CompatBody, GenerateBody, GenerateStreamBody
from tribar.gateway.tgi.problem import error_json
from tribar.gateway.tgi.writer import TgiWriter

GENERATE = Dialect("tgi-", GenerateBody, generate_call, TgiWriter, error_json)
GENERATE_STREAM = Dialect("tgi-", GenerateStreamBody, generate_stream_call, TgiWriter, error_json)
COMPAT = Dialect("tgi-", CompatBody, compat_call, TgiWriter, error_json)
