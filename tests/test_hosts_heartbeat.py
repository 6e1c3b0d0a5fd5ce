"""Processes that are late, killed, or stopped are named."""

import socket

import pytest
from host_processes import run_processes

HOST = socket.gethostname()


@pytest.mark.slow
def test_a_late_process_is_named_with_what_it_is_at():
    script = """
with open_channel(late_after=1.0) as channel:
    channel.gather(None)
    channel.report("iteration 3: generate")
    if me == 1:
        time.sleep(3)
    channel.gather(None)
"""
    zero, one = run_processes(2, script)
    assert [ended.code for ended in (zero, one)] == [0, 0]
    (line,) = [line for line in zero.error.splitlines() if "late" in line]
    assert line.startswith(f"process 1 ({HOST}) is late, at: iteration 3: generate; 1 of 2")
    assert "late" not in one.error


@pytest.mark.parametrize(
    "place", ["collective", pytest.param("channel.gather(None)", marks=pytest.mark.slow)]
)
def test_a_killed_process_ends_the_others(place):
    script = f"""
with open_channel() as channel:
    channel.gather(None)
    if me == 1:
        time.sleep(0.5)
        os.kill(os.getpid(), signal.SIGKILL)
    {place}()
""".replace("(None)()", "(None)")
    ended = run_processes(3, script)
    assert ended[1].code == -9
    for other in (ended[0], ended[2]):
        assert other.code == 1, other.error
        assert other.error.splitlines()[-1] == f"error: process 1 ({HOST}) ended without a word"
        assert other.after < 30
        assert "Traceback" not in other.error


@pytest.mark.slow
def test_process_zero_killed_ends_the_others():
    script = """
with open_channel() as channel:
    channel.gather(None)
    if me == 0:
        time.sleep(0.5)
        os.kill(os.getpid(), signal.SIGKILL)
    collective()
"""
    ended = run_processes(2, script)
    assert ended[0].code == -9
    for other in ended[1:]:
        # JAX sees it too, and may abort at the same moment: it is the message that counts.
        assert other.code != 0 and other.after < 30
        assert f"error: process 0 ({HOST}) ended without a word" in other.error


@pytest.mark.slow
def test_a_host_that_vanishes_counts_as_ended():
    script = """
with open_channel(silence_after=3.0) as channel:
    channel.gather(None)
    if me == 1:
        # Woken when the others are gone, so that it ends too.
        subprocess.Popen(["sh", "-c", f"sleep 7; kill -CONT {os.getpid()}"])
        os.kill(os.getpid(), signal.SIGSTOP)
    collective()
"""
    zero, one = run_processes(2, script)
    text = f"process 1 ({HOST}) ended without a word (nothing heard of it for"
    assert zero.code == 1 and text in zero.error
    assert one.code != 0
