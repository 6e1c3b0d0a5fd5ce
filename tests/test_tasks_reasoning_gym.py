import pickle
import re
import subprocess
import sys

import numpy as np
import pytest

from jax_rl.config import TaskConfig
from jax_rl.errors import UserError
from jax_rl.rewards.base import Response
from jax_rl.tasks.prompts import training_problems, validation_problems
from jax_rl.tasks.reasoning_gym import ReasoningGym


def make(dataset="chain_sum", **fields):
    pytest.importorskip("reasoning_gym")
    return ReasoningGym(TaskConfig(name="reasoning_gym", dataset=dataset, **fields))


def score(task, problem, text):
    """The reward, called as another process calls it."""
    reward, problem = pickle.loads(pickle.dumps((task.reward, problem)))
    return reward(problem, Response(text=text, tokens=9, ended=True, limit=99))


def test_items_are_asked_and_judged():
    task = make()
    problem = task.draw(np.random.default_rng(0))
    # An independent reading of the sum in the question, such as "...: 4 - 3 + 5 =".
    terms = re.search(r": ([-+ 0-9]+) =", problem.prompt)[1].replace(" ", "")
    right = sum(map(int, re.findall(r"[-+]?\d+", terms)))
    assert score(task, problem, f"So <answer>{right}</answer>") == 1.0
    assert score(task, problem, f"<answer>0</answer> no, <answer> {right}\n</answer>.") == 1.0
    assert score(task, problem, str(right)) == 1.0
    assert score(task, problem, f"<answer>{right + 1}</answer>") < 0.5
    assert score(task, problem, task.solve(problem, np.random.default_rng(0))) == 1.0


def test_groups_are_pure_and_validation_is_held_out():
    task = make()
    held_out = frozenset(problem.content for problem in validation_problems(task, 50, seed=0))
    assert len(held_out) == 50
    source = training_problems(task, seed=1, held_out=held_out)
    again = training_problems(make(), seed=1, held_out=held_out)
    assert [again[g] for g in (9, 4, 0)] == [source[:10][g] for g in (9, 4, 0)]
    assert not {problem.content for problem in source[:500]} & held_out
    assert len({problem.content for problem in source[:100]}) > 90


def test_template_names_the_question():
    problem = make(template="Q {question} A").draw(np.random.default_rng(0))
    assert problem.prompt == f"Q {problem.answer['question']} A"


def test_text_that_a_judge_cannot_read_is_wrong():
    # This judge converts to int and raises on anything else.
    task = make("prime_factorization")
    problem = task.draw(np.random.default_rng(0))
    assert score(task, problem, "no idea") == 0.0
    assert score(task, problem, problem.answer["answer"]) == 1.0


def test_a_judge_that_fails_on_its_own_answer_raises():
    task = make("prime_factorization")
    problem = task.draw(np.random.default_rng(0))
    problem.answer["answer"] = "broken"
    with pytest.raises(ValueError, match="broken"):
        score(task, problem, "no idea")


def test_an_unknown_name_is_refused_with_the_nearest():
    with pytest.raises(UserError, match=r"task.dataset = 'chain_sums' is no .*near: chain_sum"):
        make("chain_sums")
    with pytest.raises(UserError, match=r"task.dataset = '' is no .*known: .*chain_sum"):
        make("")


def test_a_data_set_that_needs_settings_is_refused():
    with pytest.raises(UserError, match="'composite': reasoning-gym cannot make it"):
        make("composite")


def test_the_data_set_is_opened_when_the_reward_is_unpickled():
    # A pool worker's time limit for loading the reward is not that for scoring a response.
    program = (
        "import pickle, sys\n"
        "assert 'reasoning_gym' not in sys.modules\n"
        "reward = pickle.loads(sys.stdin.buffer.read())\n"
        "from jax_rl.tasks.reasoning_gym import _open\n"
        "assert 'reasoning_gym' in sys.modules\n"
        "print(reward.dataset, _open.cache_info().currsize)\n"
        "from jax_rl.rewards.base import Problem, Response\n"
        "item = {'answer': '5', 'question': '2 + 3', 'metadata': {}}\n"
        "response = Response(text='5', tokens=1, ended=True, limit=9)\n"
        "print(reward(Problem(prompt='p', content='p', answer=item), response))\n"
        "print(_open.cache_info().currsize)\n"
    )
    out = subprocess.run(
        [sys.executable, "-c", program], input=pickle.dumps(make().reward), capture_output=True
    )
    assert out.stdout.split() == [b"chain_sum", b"1", b"1.0", b"1"], out.stderr.decode()


def test_without_the_package_it_says_what_to_install():
    program = (
        "import sys; sys.modules['reasoning_gym'] = None\n"
        "from jax_rl.config import TaskConfig\n"
        "from jax_rl.errors import UserError\n"
        "from jax_rl.tasks.base import load_task\n"
        "try: load_task(TaskConfig(name='reasoning_gym', dataset='chain_sum'))\n"
        "except UserError as error: print(error)"
    )
    out = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert "pip install 'jax-rl[tasks]'" in out.stdout, out.stderr
