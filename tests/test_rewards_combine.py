import pickle
import subprocess
import sys
import textwrap

import pytest

from jax_rl.config import RewardConfig
from jax_rl.errors import UserError
from jax_rl.rewards.base import Problem, Response
from jax_rl.rewards.combine import make_reward

PROBLEM = Problem(prompt="2+2?", content="2+2", answer="4")
CHAT = Problem(
    prompt=({"role": "system", "content": "Add."}, {"role": "user", "content": "2+2?"}),
    content="2+2",
    answer="4",
)
FUNCTIONS = """
import functools

NUMBER = 3

def of_objects(problem, response):
    return response.tokens + len(problem.answer)

def of_texts(prompt, response, answer):
    return float(f"{prompt}|{response}|{answer}" == EXPECTED)

EXPECTED = "2+2?|four|4"

def of_chat(prompt, response, answer, *, scale=2.0):
    return scale * (prompt == "Add.\\n\\n2+2?")

class Judge:
    def __call__(self, problem, response):
        return 0.25

    def method(self, prompt, response, answer):
        return 0.75

judge = Judge()
method = judge.method
part = functools.partial(of_chat, scale=5.0)

def nothing(problem, response):
    return None

def one(response): ...
def four(a, b, c, d): ...
def maybe(problem, response, answer=None): ...
def any_number(*arguments): ...
def needs_keyword(problem, response, *, scale): ...
async def later(problem, response): ...
"""


@pytest.fixture
def functions(tmp_path, monkeypatch):
    """The name of a module with functions of a user's."""
    (tmp_path / "functions_of_a_user.py").write_text(FUNCTIONS)
    monkeypatch.syspath_prepend(tmp_path)
    yield "functions_of_a_user"
    sys.modules.pop("functions_of_a_user", None)


def respond(text, tokens=10, limit=20):
    return Response(text=text, tokens=tokens, ended=True, limit=limit)


def own(problem, response):
    return 0.5


def test_without_verifiers_the_task_scores():
    assert make_reward(RewardConfig(), own) is own


def test_one_verifier_replaces_the_tasks_own():
    reward = make_reward(RewardConfig(verifiers=("numeric",)), own)
    assert reward(PROBLEM, respond("It is 4.")) == 1.0
    assert reward(PROBLEM, respond("It is 5.")) == 0.0


def test_a_weighted_sum_by_hand():
    config = RewardConfig(
        verifiers=("numeric", "format", "length", "exact"),
        weights=(2.0, 0.5, -0.25, 1.0),
        pattern=r"<a>.*</a>",
        length_free=10,
    )
    reward = make_reward(config)
    assert reward(PROBLEM, respond("<a>4</a>", tokens=10)) == 2.5
    assert reward(PROBLEM, respond("<a>5</a>", tokens=15)) == 0.5 - 0.125
    assert reward(PROBLEM, respond("4", tokens=20)) == 2.0 - 0.25 + 1.0


def test_every_verifier_by_name():
    config = RewardConfig(verifiers=("regex",), pattern=r"=(\d)")
    assert make_reward(config)(PROBLEM, respond("x=4")) == 1.0
    countdown = make_reward(RewardConfig(verifiers=("countdown",)))
    problem = Problem(prompt="p", content="p", answer={"numbers": [1, 2], "target": 3})
    assert countdown(problem, respond("1+2")) == 1.0


def test_math_by_name():
    pytest.importorskip("math_verify")
    reward = make_reward(RewardConfig(verifiers=("math",)))
    assert reward(PROBLEM, respond(r"\boxed{2^2}")) == 1.0


def test_math_without_its_package(monkeypatch):
    monkeypatch.setitem(sys.modules, "math_verify", None)
    monkeypatch.delitem(sys.modules, "jax_rl.rewards.math_answer", raising=False)
    with pytest.raises(UserError, match=r"pip install 'jax-rl\[math\]'"):
        make_reward(RewardConfig(verifiers=("math",)))


@pytest.mark.parametrize(
    ("name", "problem", "expected"),
    [
        ("of_objects", PROBLEM, 11.0),
        ("of_texts", PROBLEM, 1.0),
        ("of_chat", CHAT, 2.0),
        ("judge", PROBLEM, 0.25),
        ("method", PROBLEM, 0.75),
        ("part", CHAT, 5.0),
    ],
)
def test_a_function_of_the_users(functions, name, problem, expected):
    reward = make_reward(RewardConfig(verifiers=(f"{functions}:{name}",)))
    assert reward(problem, respond("four")) == expected
    assert pickle.loads(pickle.dumps(reward))(problem, respond("four")) == expected


@pytest.mark.parametrize(
    "name",
    ["one", "four", "maybe", "any_number", "needs_keyword", "later", "Judge", "NUMBER"],
)
def test_other_parameters_are_refused(functions, name):
    with pytest.raises(UserError, match=r"exactly \(problem, response\) or \(prompt, response"):
        make_reward(RewardConfig(verifiers=(f"{functions}:{name}",)))


def test_the_verifier_that_failed_is_named(functions):
    reward = make_reward(RewardConfig(verifiers=("exact", f"{functions}:nothing")))
    with pytest.raises(ValueError, match="functions_of_a_user:nothing: TypeError: the reward is N"):
        reward(PROBLEM, respond("4"))


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({}, "reward.verifiers is empty and the task has no reward"),
        ({"verifiers": ("numerc",)}, "did you mean 'numeric'"),
        ({"verifiers": ("no_module:f",)}, "no_module"),
        ({"verifiers": ("__main__:f",)}, "file of its own|__main__"),
        ({"verifiers": ("exact",), "weights": (1.0, 2.0)}, "2 numbers for the 1 of"),
        ({"weights": (1.0,)}, "1 numbers for the 0 of"),
        ({"verifiers": ("exact",), "weights": (float("nan"),)}, "finite"),
        ({"verifiers": ("length",)}, "below 0"),
        ({"verifiers": ("length",), "weights": (-1.0,), "length_free": -1}, "0 or above"),
        ({"verifiers": ("regex",)}, "reward.pattern is empty, and regex"),
        ({"verifiers": ("format",)}, "reward.pattern is empty, and format"),
        ({"verifiers": ("regex",), "pattern": "a+"}, "no group"),
        ({"verifiers": ("format",), "pattern": "(a"}, "not a regular expression"),
        ({"verifiers": ("exact",), "pattern": "a"}, "reward.pattern = 'a' is not used"),
        ({"pattern": "a"}, "reward.pattern = 'a' is not used"),
        ({"verifiers": ("exact",), "length_free": 3}, "reward.length_free = 3 is not used"),
    ],
)
def test_what_does_not_fit_is_refused(fields, message):
    with pytest.raises(UserError, match=message):
        make_reward(RewardConfig(**fields))


def test_a_sum_survives_pickling():
    config = RewardConfig(
        verifiers=("numeric", "length", "format"), weights=(1.0, -1.0, 1.0), pattern="4"
    )
    reward = pickle.loads(pickle.dumps(make_reward(config)))
    assert reward(PROBLEM, respond("4", tokens=5)) == 1.75


def test_nothing_here_imports_jax():
    code = """
        import pkgutil, sys
        import jax_rl.rewards
        for module in pkgutil.iter_modules(jax_rl.rewards.__path__):
            if module.name != "math_answer":
                __import__(f"jax_rl.rewards.{module.name}")
        print(sorted({"jax", "jax_rl.tasks", "cloudpickle", "sympy"} & set(sys.modules)))
    """
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(code)], capture_output=True, text=True, check=True
    )
    assert done.stdout.strip() == "[]"
