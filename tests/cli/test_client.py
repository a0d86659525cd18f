"""The client against a scripted server: streams, their ends, and every way to be refused."""

import contextlib
import socket

import pytest

from mashbox.cli.client import Answer, Call, Client, End, Model, Piece, base_url
from mashbox.errors import RemoteError, Unreachable, UsageError
from tests.cli.scripted import Refusal, Reply, ScriptedServer, answer, delta, finish, serving
from tests.patience import PATIENCE


def ask(reply: Reply, **options: object) -> tuple[list[Answer], ScriptedServer]:
    with serving(ScriptedServer(reply)) as server, Client(server.url) as client:
        return list(client.chat([{"role": "user", "content": "hi"}], **options)), server


def refusal(reply: Reply) -> RemoteError:
    with pytest.raises(RemoteError) as caught:
        ask(reply)
    return caught.value


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ("127.0.0.1:8000", "http://127.0.0.1:8000"),
        ("http://x:1/v1/", "http://x:1"),
        ("https://x/openai/v1", "https://x/openai"),
        (" localhost:9/ ", "http://localhost:9"),
        ("http://[::1]:9", "http://[::1]:9"),
        ("http://bücher.example", "http://bücher.example"),
    ],
)
def test_addresses_as_people_write_them(given: str, expected: str) -> None:
    assert base_url(given) == expected


@pytest.mark.parametrize(
    "given", ["", "ftp://x", "http://", "http://a:b:c", "http://a b", "http://[a", "http://a:99999"]
)
def test_what_is_no_address_is_wrong_use(given: str) -> None:
    with pytest.raises(UsageError):
        base_url(given)


def test_a_streamed_answer() -> None:
    thought = delta(reasoning_content="hm")
    events, server = ask(
        [thought, ": keep-alive\n\n", *answer("Hel", "lo ", "🙂")], temperature=0.5, seed=None
    )
    assert events[:-1] == [
        Piece("thinking", "hm"),
        Piece("text", "Hel"),
        Piece("text", "lo "),
        Piece("text", "🙂"),
    ]
    end = events[-1]
    assert isinstance(end, End)
    assert (end.reason, end.prompt_tokens, end.completion_tokens, end.cached_tokens) == ("stop", 7, 3, 2)
    assert end.decode_rate == 40.0
    assert end.first_seconds is not None
    assert 0 <= end.first_seconds <= end.seconds
    assert server.requests == [
        {
            "messages": [{"role": "user", "content": "hi"}],
            "stream": True,
            "stream_options": {"include_usage": True},
            "temperature": 0.5,
        }
    ]


def test_the_rate_is_measured_where_the_server_sends_none() -> None:
    events, _ = ask([delta(content="a"), 0.1, delta(content="b"), *finish(rate=None)])
    end = events[-1]
    assert isinstance(end, End)
    assert end.decode_rate is not None
    assert 2 < end.decode_rate < 25


def test_tool_calls_in_pieces_come_whole() -> None:
    first = {"index": 0, "id": "a", "function": {"name": "f", "arguments": '{"x"'}}
    rest = {"index": 0, "function": {"arguments": ": 1}"}}
    other = {"index": 1, "id": "b", "function": {"name": "g", "arguments": "{}"}}
    events, _ = ask([delta(tool_calls=[first]), delta(tool_calls=[rest, other]), *finish("tool_calls")])
    assert events[:-1] == [Call("f", '{"x": 1}'), Call("g", "{}")]


def test_a_stream_that_breaks_off_is_an_error() -> None:
    problem = refusal([delta(content="a")])
    assert isinstance(problem, Unreachable)
    assert "broke off" in problem.message


def test_an_error_event_is_the_servers_own_words() -> None:
    problem = refusal(
        [delta(content="a"), {"error": {"message": "The worker died.", "type": "server_error"}}]
    )
    assert problem.message == "The worker died."


def test_a_chunk_that_is_not_json_is_an_error() -> None:
    assert "not JSON" in refusal(["data: {\n\n"]).message


def openai(message: str, code: str | None = None) -> dict[str, object]:
    return {"error": {"message": message, "type": "x", "param": None, "code": code}}


@pytest.mark.parametrize(
    ("reply", "words"),
    [
        (Refusal(400, openai("600 tokens, holds 512.", "context_length_exceeded")), "600 tokens, holds 512."),
        (Refusal(401, openai("no")), "The server wants a key. Give --api-key, or set MASHBOX_API_KEY."),
        (Refusal(404, openai("The model 'x' is not served here.")), "The model 'x' is not served here."),
        (Refusal(429, openai("32 wait."), retry_after="7"), "32 wait. Try again in 7 s."),
        (Refusal(429, openai("32 wait. Try again in 7 s."), retry_after="7"), "32 wait. Try again in 7 s."),
        (
            Refusal(503, openai("The model is loading."), retry_after="x"),
            "The model is loading. Try again shortly.",
        ),
        (Refusal(500, b"<html>"), "The server answered 500 Internal Server Error."),
        (Refusal(502, {"error": "upstream"}), "upstream"),
        (Refusal(529, {"type": "error", "error": {"type": "overloaded_error", "message": "Full."}}), "Full."),
    ],
)
def test_refusals_in_words(reply: Refusal, words: str) -> None:
    problem = refusal(reply)
    assert str(problem) == words
    assert problem.status == reply.status
    assert problem.exit_code == 1


def test_retry_after_and_code_are_kept() -> None:
    problem = refusal(Refusal(429, openai("Full.", "line_full"), retry_after="7"))
    assert (problem.retry_after, problem.code) == (7.0, "line_full")


def test_closing_the_generator_ends_the_connection() -> None:
    reply = [delta(content="a"), *([0.02, delta(content="b")] * 500)]
    with serving(ScriptedServer(reply)) as server, Client(server.url) as client:
        with contextlib.closing(client.chat([])) as events:
            assert next(events) == Piece("text", "a")
        assert server.cut_off.wait(PATIENCE)


def test_nobody_there() -> None:
    with (
        Client(f"127.0.0.1:{free_port()}") as client,
        pytest.raises(Unreachable, match="No server answers at"),
    ):
        client.health()


def test_health_and_models() -> None:
    state = {"ready": False}
    with serving(ScriptedServer(ready=lambda: state["ready"])) as server, Client(server.url) as client:
        health = client.health()
        assert health is not None
        assert not health.ready
        state["ready"] = True
        health = client.health()
        assert health is not None
        assert health.ready
        assert client.models() == [Model("tiny", 512, owner="someone")]


def test_the_key_is_sent_as_a_bearer() -> None:
    with serving(ScriptedServer(answer("x"))) as server, Client(server.url, key="secret") as client:
        list(client.chat([]))
    assert server.keys == ["Bearer secret"]
