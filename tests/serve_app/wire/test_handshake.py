"""Each end of a private connection proves that it knows the secret, to this peer and for this connection."""

from __future__ import annotations

import pytest

from serve_app.wire.handshake import GREETING, HELLO_BYTES, PROOF_BYTES, REPLY_BYTES, Handshake, NotProven

SECRET = "the-secret-of-this-start"
ADDRESS = "http://10.0.0.1:4000"


def ends(
    *, secret: str = SECRET, listens_at: str = ADDRESS, called: str = ADDRESS
) -> tuple[Handshake, Handshake]:
    """Caller and listener."""
    return Handshake(SECRET, called), Handshake(secret, listens_at)


def test_two_ends_of_one_secret_prove_it_to_each_other() -> None:
    caller, listener = ends()
    hello = caller.hello()
    reply = listener.reply(hello)
    proof = caller.answer(reply)
    listener.check(proof)
    assert (len(hello), len(reply), len(proof)) == (HELLO_BYTES, REPLY_BYTES, PROOF_BYTES)
    assert SECRET.encode() not in hello + reply + proof


def test_a_listener_without_the_secret_is_told_no_proof() -> None:
    caller, listener = ends(secret="another")
    with pytest.raises(NotProven, match="does not know the secret"):
        caller.answer(listener.reply(caller.hello()))


def test_a_caller_without_the_secret_is_refused() -> None:
    _, listener = ends()
    stranger = Handshake("another", ADDRESS)
    reply = listener.reply(stranger.hello())
    with pytest.raises(NotProven):
        listener.check(stranger.answer(Handshake("another", ADDRESS).reply(stranger.hello())))
    with pytest.raises(NotProven):
        listener.check(reply[-PROOF_BYTES:])  # the listener's own proof, sent back


def test_what_another_listener_of_the_same_secret_proves_is_refused() -> None:
    caller, elsewhere = ends(listens_at="http://10.0.0.1:5000")
    with pytest.raises(NotProven):  # a stranger passes both on, and would read what follows
        caller.answer(elsewhere.reply(caller.hello()))


def test_a_proof_of_an_earlier_connection_is_refused() -> None:
    caller, listener = ends()
    proof = caller.answer(listener.reply(caller.hello()))
    later = Handshake(SECRET, ADDRESS)
    later.reply(caller.hello())
    with pytest.raises(NotProven):
        later.check(proof)


def test_a_reply_of_an_earlier_connection_is_refused() -> None:
    caller, listener = ends()
    reply = listener.reply(caller.hello())
    with pytest.raises(NotProven):
        Handshake(SECRET, ADDRESS).answer(reply)


@pytest.mark.parametrize("hello", [b"", GREETING, b"x" * HELLO_BYTES, GREETING + b"x" * 99])
def test_what_is_no_greeting_is_refused(hello: bytes) -> None:
    with pytest.raises(NotProven, match="no greeting"):
        Handshake(SECRET, ADDRESS).reply(hello)


def test_no_proof_is_taken_before_a_greeting() -> None:
    with pytest.raises(NotProven):
        Handshake(SECRET, ADDRESS).check(b"x" * PROOF_BYTES)
