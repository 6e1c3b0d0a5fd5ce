"""What processes tell each other, and how they end when one of them fails."""

import jax
import numpy as np
import pytest
from host_processes import run_processes

from jax_rl.errors import UserError
from jax_rl.hosts.address import Address
from jax_rl.hosts.channel import open_channel
from jax_rl.hosts.hub import Hub
from jax_rl.hosts.link import Link, Loop
from jax_rl.hosts.wire import decode, encode


def test_values_come_back_as_they_were_sent():
    value = {"a": [1, -2.5, True, None, "ü\n"], "array": {"dict": 0, "": []}, "big": 2**80}
    assert decode(encode(value)) == value
    assert decode(encode((1, (2, 3)))) == [1, [2, 3]]
    assert decode(encode([np.float32(0.5), np.int64(7), np.bool_(True)])) == [0.5, 7, True]
    assert np.isnan(decode(encode(float("nan"))))


@pytest.mark.parametrize(
    "array",
    [
        np.arange(6, dtype=np.int32).reshape(2, 3).T,
        np.arange(3, dtype=">f4"),
        np.array(2.5),
        np.zeros((0, 4), np.int8),
        np.array([True, False]),
        np.array([1 + 2j]),
        np.array([1.5, -3.0], jax.numpy.bfloat16),
    ],
)
def test_arrays_come_back_equal_new_and_writable(array):
    (back,) = decode(encode([array]))
    assert back.shape == array.shape and back.dtype == array.dtype.newbyteorder("=")
    np.testing.assert_array_equal(back, array)
    back[...] = 0


@pytest.mark.parametrize("value", [{1: 2}, [object()], np.array(["a"]), {"x": b""}, {1, 2}])
def test_what_cannot_be_sent_is_refused_by_its_place(value):
    with pytest.raises(TypeError, match=r"value(\[0\]|\['x'\])? (has the key 1|is a )"):
        encode(value)


def test_one_process_has_a_channel_too():
    with open_channel() as channel:
        channel.report("nothing")
        assert (channel.index, channel.count) == (0, 1)
        assert channel.gather((1, 2)) == [[1, 2]]
        assert channel.share({"a": 1}) == {"a": 1}
        with pytest.raises(TypeError, match="cannot be sent"):
            channel.gather(object())


def test_only_those_who_know_the_key_are_let_in():
    loop = Loop()
    hub = Hub(1, key=b"right", late_after=60, silence_after=30, tell=print)
    port = loop.run(hub.listen())
    with pytest.raises(UserError, match=rf"cannot reach process 0 on port {port} of 127.0.0.1"):
        Link(loop, 0, silence_after=30).join(Address(("127.0.0.1",), port, b"wrong"), ())
    link = Link(loop, 0, silence_after=30, hub=hub)
    link.join(Address(("127.0.0.1",), port, b"right"), ())
    assert link.meet("gather", b"body") == [b"body"]
    link.leave()
    assert link.closed
    link.close()


def test_three_processes_gather_and_share():
    script = """
with open_channel() as channel:
    assert connect()  # again says the same
    rows = channel.gather({"me": me, "rows": np.full((2, me), me, np.float32)})
    assert [row["me"] for row in rows] == [0, 1, 2]
    assert [row["rows"].tolist() for row in rows] == [[[], []], [[1], [1]], [[2, 2], [2, 2]]]
    assert channel.share(["only", me]) == ["only", 0]
    large = channel.gather(np.full(300_000, me))
    assert [part.sum() for part in large] == [0, 300_000, 600_000]
    for turn in range(50):
        assert channel.gather(turn * me) == [0, turn, 2 * turn]
with open_channel() as channel:  # and again
    assert channel.count == len(channel.gather(None)) == 3
print("done")
"""
    for ended in run_processes(3, script):
        assert ended.code == 0, ended.error
        assert ended.out.endswith("done\n")


def test_an_error_on_one_ends_all_with_its_message():
    script = """
def work():
    with open_channel() as channel:
        channel.gather(None)
        if me == 1:
            raise UserError("row 7 has no answer")
        collective()
fail(work)
"""
    zero, one, two = run_processes(3, script)
    for ended in (zero, two):
        assert ended.code == 2
        assert ended.error.splitlines()[-1].startswith("error: process 1 (")
        assert ended.error.endswith("): row 7 has no answer\n")
    assert (one.code, one.error.splitlines()[-1]) == (2, "error: row 7 has no answer")
    assert max(ended.after for ended in (zero, one, two)) < 30


@pytest.mark.slow
def test_process_zero_fails_and_no_other_is_aborted():
    script = """
with open_channel() as channel:
    channel.gather(None)
    if me == 0:
        raise ValueError("broken")
    collective()
"""
    zero, one = run_processes(2, script)
    assert one.code == 1
    assert one.error.splitlines()[-1].endswith("): ValueError: broken")
    assert zero.code == 1 and zero.error.endswith("ValueError: broken\n")
    assert "coordination" not in zero.error + one.error


@pytest.mark.slow
def test_an_interrupt_of_process_zero_ends_all_with_130():
    script = """
with open_channel() as channel:
    channel.gather(None)
    if me == 0:
        raise KeyboardInterrupt
    collective()
"""
    zero, one = run_processes(2, script)
    assert (zero.code, one.code) == (130, 130)
    assert one.error.splitlines()[-1].endswith("): interrupted")


@pytest.mark.slow
def test_the_same_error_on_all_can_be_caught_by_all():
    script = """
for _ in range(2):
    try:
        with open_channel() as channel:
            channel.gather(None)
            time.sleep(0.5 * me)
            raise UserError("diverged")
    except UserError as error:
        print("caught", error)
collective()
"""
    for ended in run_processes(2, script):
        assert ended.code == 0, ended.error
        assert ended.out.count("caught diverged") == 2
        assert "error" not in ended.error


@pytest.mark.slow
def test_processes_out_of_step_are_told_so():
    script = """
with open_channel() as channel:
    channel.gather(1) if me else channel.share(1)
"""
    for ended in run_processes(2, script):
        assert ended.code == 1
        assert "out of step" in ended.error and "share" in ended.error and "gather" in ended.error
