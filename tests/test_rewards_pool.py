import contextlib
import os
import signal
import subprocess
import sys
import textwrap
import threading
import time
from pathlib import Path

import numpy as np
import pytest

from jax_rl.config import RewardConfig
from jax_rl.errors import UserError
from jax_rl.rewards.base import Problem, Response
from jax_rl.rewards.combine import make_reward
from jax_rl.rewards.pool import RewardPool

REWARDS = """
import math, os, re, resource, signal, subprocess, sys, time

def misbehave(problem, response):
    word, _, value = response.text.partition(" ")
    if word == "sleep":
        time.sleep(60)
    if word == "nap":
        time.sleep(0.1)
    if word == "power":
        9**9**9
    if word == "pattern":
        re.match("(a+)+$", "a" * 60 + "b")
    if word == "deaf":
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGALRM):
            signal.signal(number, signal.SIG_IGN)
        time.sleep(60)
    if word == "child":
        with open(value, "w") as file:
            file.write(str(subprocess.Popen(["sleep", "60"]).pid))
        time.sleep(60)
    if word == "exit":
        os._exit(3)
    if word == "segment":
        os.kill(os.getpid(), signal.SIGSEGV)
    if word == "kill":
        os.kill(os.getpid(), signal.SIGKILL)
    if word == "leave":
        sys.exit(1)
    if word == "raise":
        raise ZeroDivisionError("1/0")
    if word == "memory":
        return len(bytearray(resource.getrlimit(resource.RLIMIT_DATA)[0]))
    if word == "pid":
        return float(os.getpid())
    if word == "platform":
        return float(os.environ["JAX_PLATFORMS"] == "cpu")
    return {"none": None, "nan": math.nan, "text": "1"}.get(word) if not value else float(value)
"""


@pytest.fixture(scope="module")
def name(tmp_path_factory):
    """The name of a reward in a user's module."""
    folder = tmp_path_factory.mktemp("user")
    (folder / "rewards_of_a_user.py").write_text(REWARDS)
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(folder)
        yield "rewards_of_a_user:misbehave"
    sys.modules.pop("rewards_of_a_user", None)


@pytest.fixture(scope="module")
def pool(name):
    config = RewardConfig(verifiers=(name,), seconds=0.5, processes=2)
    with RewardPool(make_reward(config), config, name="trial") as pool:
        run(pool, ["is 1"])
        yield pool


def submit(pool, texts):
    problems = [Problem(prompt=f"p{i}", content=f"p{i}") for i in range(len(texts))]
    return pool.submit(problems, [Response(text, 1, True, 9) for text in texts])


def run(pool, texts):
    return submit(pool, texts).result()


def is_running(pid):
    """Whether the process is there, and not a zombie that nobody has waited for."""
    with contextlib.suppress(FileNotFoundError, ProcessLookupError):
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    return False


def wait_until_gone(pids, seconds):
    end = time.monotonic() + seconds
    while any(map(is_running, pids)) and time.monotonic() < end:
        time.sleep(0.02)
    assert not any(map(is_running, pids))


def test_rewards_are_paired_by_index(pool):
    numbers = np.random.default_rng(0).permutation(1000)
    scores = run(pool, [f"is {number}" for number in numbers])
    np.testing.assert_array_equal(scores.rewards, numbers.astype(np.float32))
    assert scores.rewards.dtype == np.float32
    assert scores.valid.all()
    assert (scores.failures, scores.timeouts, scores.first_failure) == (0, 0, None)


@pytest.mark.parametrize("word", ["sleep", "power", "pattern", "deaf"])
def test_a_late_response_is_killed_and_fails_alone(pool, word):
    run(pool, ["is 1"] * 8)
    texts = [f"is {i}" for i in range(40)]
    texts[3] = word
    start = time.monotonic()
    scores = run(pool, texts)
    seconds = time.monotonic() - start
    assert 0.5 <= seconds < 2.0  # about 0.55; the rest is room for a busy machine
    assert (scores.failures, scores.timeouts) == (1, 1)
    assert np.flatnonzero(~scores.valid).tolist() == [3]
    np.testing.assert_array_equal(np.delete(scores.rewards, 3), np.delete(np.arange(40), 3))
    assert scores.first_failure == (
        f"row 3: prompt 'p3', response '{word}': timeout: it took longer than reward.seconds = 0.5"
    )


def test_the_clock_is_each_responses_own(pool):
    # One process or the other scores at least ten of them, one after the other.
    scores = run(pool, ["nap 1"] * 20)
    assert scores.rewards.sum() == 20
    assert scores.failures == 0


@pytest.mark.parametrize(
    ("word", "cause"),
    [
        ("exit", "the process that scored it ended with exit code 3"),
        ("segment", "the process that scored it ended with SIGSEGV"),
        ("kill", "the process that scored it ended with SIGKILL"),
        ("leave", "SystemExit: 1"),
        ("raise", "rewards_of_a_user:misbehave: ZeroDivisionError: 1/0"),
        ("none", "the reward is None"),
        ("nan", "the reward is nan"),
        ("text", "a text and not a number"),
        ("is inf", "the reward is inf"),
        ("memory", "MemoryError"),
    ],
)
def test_a_failure_has_its_reason_and_fails_alone(pool, word, cause):
    scores = run(pool, ["is 1", word, "is 2", "is 3"])
    assert scores.rewards.tolist() == [1, 0, 2, 3]
    assert scores.valid.tolist() == [True, False, True, True]
    assert (scores.failures, scores.timeouts) == (1, 0)
    assert cause in scores.first_failure


def test_all_may_fail(pool):
    scores = run(pool, ["raise", "exit"])
    assert scores.failures == 2
    assert scores.rewards.tolist() == [0, 0]
    assert run(pool, ["is 1"]).rewards.tolist() == [1]


def test_submit_returns_at_once_and_order_is_free(pool):
    start = time.monotonic()
    first, second = submit(pool, ["sleep", "is 1"]), submit(pool, ["is 2"])
    assert time.monotonic() - start < 0.3
    assert second.result().rewards.tolist() == [2]
    assert first.result().rewards.tolist() == [0, 1]
    assert first.result().timeouts == 1


def test_many_threads_may_submit(pool):
    got = {}

    def work(number):
        got[number] = run(pool, [f"is {number}"] * 20).rewards.tolist()

    threads = [threading.Thread(target=work, args=(number,)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert got == {number: [number] * 20 for number in range(8)}


def test_nothing_to_score_and_unequal_rows(pool):
    assert run(pool, []).rewards.shape == (0,)
    with pytest.raises(ValueError, match="shorter"):
        pool.submit([Problem("p", "p")] * 2, [Response("is 1", 1, True, 9)])


def test_what_cannot_be_sent_fails_alone(pool):
    problems = [Problem("p", "p", answer=lambda: 0), Problem("p", "p")]
    scores = pool.submit(problems, [Response("is 1", 1, True, 9)] * 2).result()
    assert scores.valid.tolist() == [False, True]
    assert "cannot be sent to another process" in scores.first_failure


def test_rewards_that_import_jax_leave_the_accelerators_alone(pool):
    assert run(pool, ["platform"]).rewards.tolist() == [1]


def test_a_kill_takes_the_children_of_the_reward_with_it(pool, tmp_path):
    file = tmp_path / "pid"
    assert run(pool, [f"child {file}", "is 1"]).timeouts == 1
    wait_until_gone([int(file.read_text())], 2.0)


def test_nothing_is_left_after_close(name):
    config = RewardConfig(verifiers=(name,), seconds=30.0, processes=2)
    with RewardPool(make_reward(config), config, name="trial") as pool:
        pids = {int(pid) for pid in run(pool, ["pid"] * 200).rewards}
        assert all(map(is_running, pids))
        pending = submit(pool, ["sleep"] * 3)
        start = time.monotonic()
    wait_until_gone(pids, 1.0)
    assert time.monotonic() - start < 5.0
    with pytest.raises(RuntimeError, match="'trial' is closed"):
        pending.result()
    with pytest.raises(RuntimeError, match="'trial' is closed"):
        run(pool, ["is 1"])
    pool.close()


def test_a_pool_that_nobody_holds_ends():
    config = RewardConfig(seconds=30.0, processes=1)
    pool = RewardPool(lambda problem, response: float(os.getpid()), config, name="trial")
    pending = submit(pool, ["x"])
    del pool
    pid = int(pending.result().rewards[0])
    assert is_running(pid)
    del pending
    wait_until_gone([pid], 2.0)


def test_a_reward_that_cannot_be_loaded_stops_the_run(tmp_path, monkeypatch):
    module = tmp_path / "reward_that_vanishes.py"
    module.write_text("def reward(problem, response):\n    return 1.0\n")
    monkeypatch.syspath_prepend(tmp_path)
    config = RewardConfig(verifiers=("reward_that_vanishes:reward",), processes=1)
    reward = make_reward(config)
    sys.modules.pop("reward_that_vanishes")
    module.write_text("raise KeyError('absent')\n")
    with RewardPool(reward, config, name="trial") as pool:
        pending = submit(pool, ["is 1"])
        with pytest.raises(UserError, match=r"'trial': no process can load the reward: .*KeyError"):
            pending.result()
        with pytest.raises(UserError, match="KeyError"):
            run(pool, ["is 1"])


def test_a_reward_that_dies_while_it_loads_stops_the_run(tmp_path, monkeypatch):
    module = tmp_path / "reward_that_dies.py"
    module.write_text("def reward(problem, response):\n    return 1.0\n")
    monkeypatch.syspath_prepend(tmp_path)
    config = RewardConfig(verifiers=("reward_that_dies:reward",), processes=1)
    reward = make_reward(config)
    sys.modules.pop("reward_that_dies")
    module.write_text("import os\nos._exit(7)\n")
    with (
        RewardPool(reward, config, name="trial") as pool,
        pytest.raises(UserError, match="loads the reward ended with exit code 7"),
    ):
        run(pool, ["is 1"])


@pytest.mark.parametrize(("seconds", "processes"), [(0.0, 1), (float("inf"), 1), (1.0, -1)])
def test_limits_out_of_range_are_refused(seconds, processes):
    config = RewardConfig(seconds=seconds, processes=processes)
    with pytest.raises(UserError, match="must be above 0"):
        RewardPool(lambda problem, response: 1.0, config, name="trial")


def test_a_reward_that_cannot_be_pickled_is_refused():
    lock = threading.Lock()
    with pytest.raises(UserError, match="cannot be sent to other processes: TypeError"):
        RewardPool(lambda problem, response: bool(lock), RewardConfig(processes=1), name="trial")


SCRIPT = """
import signal
import sys
import time

from jax_rl.config import RewardConfig
from jax_rl.rewards.base import Problem, Response
from jax_rl.rewards.combine import make_reward
from jax_rl.rewards.pool import RewardPool

signal.signal(signal.SIGINT, signal.default_int_handler)  # a job in the background ignores it
print("script", flush=True)
MODE = sys.argv[1]


def own(problem, response):
    import os
    if response.text == "hang":
        time.sleep(60)
    return float(os.getpid())


config = RewardConfig(
    verifiers=() if MODE != "module" else ("reward_beside:count",), seconds=1.0, processes=2
)
pool = RewardPool(make_reward(config, own), config, name="trial")
texts = ["word"] * 100
scores = pool.submit([Problem("p", "p")] * 100, [Response(t, 1, True, 9) for t in texts]).result()
print(*sorted(set(scores.rewards.astype(int).tolist())), flush=True)
pool.submit([Problem("p", "p")] * 2, [Response("hang", 1, True, 9)] * 2)
if MODE == "interrupted":
    time.sleep(60)
if MODE == "killed":
    import os
    time.sleep(0.2)
    os.kill(os.getpid(), signal.SIGKILL)
"""


@pytest.fixture
def script(tmp_path):
    """Starts a script that has no `if __name__ == "__main__"`, in a mode."""
    (tmp_path / "script.py").write_text(SCRIPT)
    (tmp_path / "reward_beside.py").write_text(
        textwrap.dedent("""
            def count(prompt, response, answer):
                print("a word of a reward")
                return len(response)
        """)
    )

    def start(mode):
        root = str(Path(__file__).parents[1])
        return subprocess.Popen(
            [sys.executable, "script.py", mode],
            cwd=tmp_path,
            env={**os.environ, "PYTHONPATH": root},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    return start


def read_pids(process):
    assert process.stdout.readline() == "script\n"
    return list(map(int, process.stdout.readline().split()))


def test_a_script_without_a_guard_and_its_own_reward(script):
    with script("plain") as process:
        pids = read_pids(process)
        assert process.stdout.read() == ""
        assert process.wait() == 0
    # Float32 rounds no process id below 2^24.
    assert pids
    wait_until_gone(pids, 1.0)


def test_a_function_beside_the_script_and_what_it_prints(script):
    with script("module") as process:
        assert read_pids(process) == [4]
        assert process.stdout.read() == ""
        assert "a word of a reward" in process.stderr.read()
        assert process.wait() == 0


@pytest.mark.parametrize("mode", ["interrupted", "killed"])
def test_nothing_is_left_of_a_script_that_ends_early(script, mode):
    with script(mode) as process:
        pids = read_pids(process)
        assert pids
        if mode == "interrupted":
            assert all(map(is_running, pids))
            process.send_signal(signal.SIGINT)
        assert process.wait(10) == -(signal.SIGINT if mode == "interrupted" else signal.SIGKILL)
        # Killed: what hangs is ended by its own alarm, 2 s after the limit of 1 s.
        wait_until_gone(pids, 1.0 if mode == "interrupted" else 4.5)
        # Nobody holds the script's output open any more.
        process.stderr.read()
