"""BUG-088: keys, with the whole stack on."""

import asyncio
import json
import logging

import pytest
from tests.process.app.stack import CHAT, KEY, OTHER_KEY, WITH_KEY, chat, first_bytes, parse, request, running

from tribar.core.fake_generator import FakeGenerator, speak
from tribar.gateway.config import GatewayConfig

CLOSED_PATHS = ["/v1/models", "/v1/models/fake", "/metrics", "/openapi.json", "/", "/none", "/health/", "/Health/live"]
PREFLIGHT = ["Access-Control-Request-Method: POST", "Access-Control-Request-Headers: authorization,x-stainless-os"]


def fake() -> FakeGenerator:
    return FakeGenerator(speak("ok"))


WRONG: dict[str, list[str]] = {
    "no header": [],
    "empty": ["Authorization:"],
    "only the scheme": ["Authorization: Bearer"],
    "only the scheme and a space": ["Authorization: Bearer "],
    "another scheme": [f"Authorization: Basic {KEY}"],
    "no scheme": [f"Authorization: {KEY}"],
    "no space": [f"Authorization: Bearer{KEY}"],
    "a wrong key": [f"Authorization: Bearer {KEY}x"],
    "a beginning": [f"Authorization: Bearer {KEY[:-1]}"],
    "other case": [f"Authorization: Bearer {KEY.upper()}"],
    "quoted": [f'Authorization: Bearer "{KEY}"'],
    "two keys in one": [f"Authorization: Bearer {KEY}, Bearer {KEY}"],
    "twice": [WITH_KEY, WITH_KEY],
    "wrong and right": ["Authorization: Bearer wrong", WITH_KEY],
    "not ASCII": ["Authorization: Bearer schlüssel-\N{KEY}"],
    "long": [f"Authorization: Bearer {'x' * 60_000}"],
    "in another header": [f"api-key: {KEY}", f"X-Api-Key: {KEY}", f"Cookie: key={KEY}"],
}


@pytest.mark.parametrize("name", WRONG)
async def test_without_a_valid_key_nothing_is_told(name: str) -> None:
    async with running(fake=fake()) as stack:
        for path in (CHAT, "/v1/models", "/metrics"):
            body = b'{"model":"fake","prompt":"x"}' if path == CHAT else b""
            method = "POST" if path == CHAT else "GET"
            answer = await stack.ask(request(method, path, *WRONG[name], body=body))
            assert answer.status == 401
            assert answer.headers["www-authenticate"] == "Bearer"
            assert (answer.error["type"], answer.error["code"]) == ("authentication_error", "invalid_api_key")
            assert "x-request-id" in answer.headers


@pytest.mark.parametrize("path", CLOSED_PATHS)
async def test_what_needs_a_key(path: str) -> None:
    """Also what does not exist; so no guess at a path tells anything."""
    async with running(fake=fake()) as stack:
        assert (await stack.ask(request("GET", path))).status == 401
        assert (await stack.ask(request("GET", path, WITH_KEY))).status in {200, 404}


async def test_health_is_open() -> None:
    async with running(fake=fake()) as stack:
        for path in ("/health", "/health/live", "/health/ready"):
            for headers in ([], ["Authorization: Bearer wrong"], [WITH_KEY, WITH_KEY]):
                assert (await stack.ask(request("GET", path, *headers))).status == 200


@pytest.mark.parametrize("scheme", ["Bearer ", "bearer ", "BEARER   "])
async def test_a_valid_key_brings_its_tenant(scheme: str) -> None:
    generator = fake()
    async with running(fake=generator) as stack:
        for key in (KEY, OTHER_KEY):
            sent = chat().replace(WITH_KEY.encode(), f"Authorization: {scheme}{key}".encode())
            assert (await stack.ask(sent)).status == 200
    assert [asked.tenant for asked in generator.requests] == ["a", "b"]


async def test_a_megabyte_of_key() -> None:
    """Refused as too large before anybody looks at it; the connection may be cut while it still comes."""
    async with running(fake=fake()) as stack:
        for n_bytes in (100_000, 1_000_000):
            reader, _ = await stack.connect(request("GET", "/v1/models", f"Authorization: Bearer {'x' * n_bytes}"))
            assert (await first_bytes(reader))[9:] in {b"431", b""}
        assert (await stack.ask(request("GET", "/v1/models", WITH_KEY))).status == 200


async def test_a_body_without_a_key_is_not_waited_for() -> None:
    async with running(fake=fake()) as stack:
        head = request("POST", CHAT, "Content-Type: application/json", "Transfer-Encoding: chunked")
        reader, _ = await stack.connect(head + b"5\r\n{....\r\n")
        async with asyncio.timeout(20):
            assert parse(await reader.readuntil(b"}}")).status == 401


@pytest.mark.parametrize("method", ["GET", "PUT", "DELETE", "OPTIONS", "HEAD", "PATCH"])
async def test_wrong_methods(method: str) -> None:
    """401 without a key, 405 with Allow with one; HEAD has no body either way."""
    async with running(fake=fake()) as stack:
        assert (await stack.ask(request(method, CHAT))).status == 401
        answer = await stack.ask(request(method, CHAT, WITH_KEY))
        assert (answer.status, answer.headers["allow"]) == (405, "POST")
        assert (answer.body == b"") == (method == "HEAD")
        answer = await stack.ask(request("HEAD", "/v1/models", WITH_KEY))
        assert (answer.status, answer.body) == (200, b"")


async def test_preflight_and_errors_of_the_pages_origin() -> None:
    """A browser asks without the key, and shows a page the 401 only with CORS headers."""
    async with running(fake=fake()) as stack:
        answer = await stack.ask(request("OPTIONS", CHAT, "Origin: http://page.test", *PREFLIGHT))
        assert (answer.status, answer.headers["access-control-allow-origin"]) == (200, "http://page.test")
        assert "authorization" in answer.headers["access-control-allow-headers"]
        for headers in ([], [WITH_KEY]):
            answer = await stack.ask(request("GET", "/v1/models", "Origin: http://page.test", *headers))
            assert answer.status == (200 if headers else 401)
            assert answer.headers["access-control-allow-origin"] == "http://page.test"
            assert "access-control-allow-credentials" not in answer.headers
        answer = await stack.ask(request("OPTIONS", CHAT, "Origin: http://evil.test", *PREFLIGHT))
        assert "access-control-allow-origin" not in answer.headers


async def test_every_origin_never_comes_with_credentials() -> None:
    async with running(config=GatewayConfig(cors_origins=("*",)), fake=fake()) as stack:
        for sent in (
            request("OPTIONS", CHAT, "Origin: http://any.test", *PREFLIGHT),
            request("GET", "/v1/models", "Origin: http://any.test", WITH_KEY),
            request("GET", "/v1/models", "Origin: http://any.test", WITH_KEY, "Cookie: a=b"),
        ):
            answer = await stack.ask(sent)
            assert answer.status == 200
            assert answer.headers["access-control-allow-origin"] in {"*", "http://any.test"}
            assert "access-control-allow-credentials" not in answer.headers


async def test_keys_reach_no_log_and_no_answer(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    unknown = "sk-unknown-0123456789"
    async with running(fake=fake()) as stack:
        for key in (KEY, unknown):
            header = f"Authorization: Bearer {key}"
            for path in ("/v1/models", "/metrics", f"/v1/models?api_key={key}", "/none"):
                answer = await stack.ask(request("GET", path, header))
                assert key.encode() not in answer.body
                assert key not in json.dumps(answer.headers)
        await stack.until_recorded(8)
    assert caplog.records
    assert KEY not in caplog.text
    assert unknown not in caplog.text
