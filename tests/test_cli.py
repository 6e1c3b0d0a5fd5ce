"""Command lines: what each calls, and what a wrong one is told."""

import ast
import inspect
import re
import subprocess
import sys
import types
import typing
from pathlib import Path
from typing import Any

import pytest

import jax_rl
from jax_rl import cli
from jax_rl.config import Config
from jax_rl.errors import UserError


@pytest.fixture
def calls(monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, tuple[Any, ...], dict[str, Any]]]:
    """Stands in for the functions behind the commands, and lists how they were called."""
    made: list[tuple[str, tuple[Any, ...], dict[str, Any]]] = []

    def stand_in(home: str, *names: str) -> None:
        module = types.ModuleType(home)
        for name in names:

            def record(*args: Any, _name: str = name, **kwargs: Any) -> Path:
                made.append((_name, args, kwargs))
                return Path("report.html")

            setattr(module, name, record)
        monkeypatch.setitem(sys.modules, home, module)

    stand_in("jax_rl.trainer.run", "train")
    stand_in("jax_rl.study.sweep", "run_study")
    stand_in("jax_rl.report.build", "build_report")
    stand_in("jax_rl.report.table", "print_table")
    stand_in("jax_rl.study.analyse", "analyse")
    stand_in("jax_rl.trainer.evaluate", "sample", "evaluate")
    return made


def test_train_makes_one_call_with_typed_overrides(calls: list[Any]) -> None:
    line = "train tiny --dir out --resume --batch.size 32 --optimizer.learning_rate 1e-2"
    assert cli.main([*line.split(), "--model.remat=dots", "--model.no_tied_head"]) == 0
    ((name, (config, directory), options),) = calls
    assert (name, directory, options) == ("train", Path("out"), {"resume": True})
    assert (config.batch.size, config.batch.group) == (32, 4)  # group: from the file
    assert config.optimizer.learning_rate == 0.01
    assert (config.model.remat, config.model.tied_head) == ("dots", False)


def test_layout_is_short_for_run_layout(calls: list[Any]) -> None:
    assert cli.main(["train", "tiny", "--layout", "fsdp"]) == 0
    assert cli.main(["train", "tiny", "--run.layout", "fsdp"]) == 0
    assert [args[0].run.layout for _, args, _ in calls] == ["fsdp", "fsdp"]


def test_directory_is_named_after_the_configuration(calls: list[Any], tmp_path: Path) -> None:
    file = tmp_path / "mine.toml"
    file.write_text("[batch]\nsize = 64\n")
    assert cli.main(["train", str(file)]) == 0
    assert calls[0][1][1] == Path("runs/mine")


def test_study_runs_and_then_reports(calls: list[Any], capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["study", "tiny", "--dir", "out", "--study.seeds", "5"]) == 0
    assert [name for name, _, _ in calls] == ["run_study", "build_report", "analyse", "print_table"]
    (_, (config, directory), _), (_, (reported,), _), *_ = calls
    assert config.study.seeds == 5
    assert directory == reported == Path("out")
    assert "report.html" in capsys.readouterr().out


def test_report_takes_a_directory(calls: list[Any]) -> None:
    assert cli.main(["report", "out"]) == 0
    assert [name for name, _, _ in calls] == ["build_report", "analyse", "print_table"]
    assert calls[0][1] == (Path("out"),)


def test_sample_and_eval_take_a_run_or_a_configuration(calls: list[Any], tmp_path: Path) -> None:
    assert cli.main(["sample", str(tmp_path), "--prompt", "1+2=", "3+4=", "--seed", "9"]) == 0
    assert cli.main(["eval", "tiny", "--samples_per_prompt", "4", "--temperature", "0.5"]) == 0
    (_, sample_source, sample_options), (_, eval_source, eval_options) = calls
    assert sample_source == (tmp_path,)
    assert sample_options["prompt_texts"] == ("1+2=", "3+4=")
    assert (sample_options["seed"], sample_options["temperature"]) == (9, None)
    assert eval_source[0].name == "tiny.toml"
    assert eval_options == {"prompts": None, "samples_per_prompt": 4, "temperature": 0.5}


@pytest.mark.parametrize(
    ("line", "parts"),
    [
        ("trian tiny", ["'trian'", "did you mean 'train'?", "study"]),
        ("train", ["the configuration comes first", "CONFIG", "tiny"]),
        ("train --batch.size 8 tiny", ["the configuration comes first"]),
        ("train tinny", ["no configuration 'tinny'", "Did you mean 'tiny'?"]),
        ("train tiny --batch.sise 8", ["--batch.sise", "--batch.size"]),
        ("train tiny --batch.size eight", ["--batch.size", "eight"]),
        ("train tiny --model.remat dot", ["remat", "none", "dots", "full"]),
        ("train tiny --batch.size 18", ["batch.size = 18", "batch.group = 4", "16 or 20"]),
        ("study tiny --validation.every_samples 16", ["every_samples = 16", "(8, 16, 32)"]),
        ("sample nowhere", ["'nowhere'", "Known:", "tiny"]),
        ("report", ["DIR"]),
    ],
)
def test_wrong_line_is_one_message_and_code_2(
    line: str, parts: list[str], calls: list[Any], capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli.main(line.split()) == 2
    written = capsys.readouterr()
    assert written.out == ""
    assert "Traceback" not in written.err
    for part in parts:
        assert part in written.err
    assert calls == []


def test_error_of_the_call_is_a_message_and_code_2(
    calls: list[Any], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def refuse(*args: Any, **kwargs: Any) -> None:
        raise UserError("out holds another run")

    monkeypatch.setattr(sys.modules["jax_rl.trainer.run"], "train", refuse)
    assert cli.main(["train", "tiny"]) == 2
    assert capsys.readouterr().err == "error: out holds another run\n"


@pytest.mark.parametrize(
    ("line", "home", "name", "part"),
    [
        ("train tiny", "jax_rl.trainer.run", "train", "runs/tiny; --resume goes on from"),
        ("study tiny", "jax_rl.study.sweep", "run_study", "runs/tiny; the same command continues"),
    ],
)
def test_interrupt_says_how_to_go_on(
    line: str,
    home: str,
    name: str,
    part: str,
    calls: list[Any],
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    def interrupt(*args: Any, **kwargs: Any) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(sys.modules[home], name, interrupt)
    assert cli.main(line.split()) == 130
    assert part in capsys.readouterr().err


def test_help_explains_every_field(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "80")  # one column of options
    assert cli.main(["train", "--help"]) == 0
    text = " ".join(capsys.readouterr().out.replace("│", " ").split())
    for name, table in typing.get_type_hints(Config).items():
        for field, words in read_field_docs(table).items():
            default = getattr(getattr(Config(), name), field)
            flag = re.escape(f"--{name}.{field}")
            usage = rf"{flag} [A-Z{{][^ ]*|{flag}, --{name}\.no_{field}"
            entry = rf"(?:{usage}) {re.escape(f'{words} (default: {default})')}"
            assert re.search(entry, text), f"{name}.{field}"


def read_field_docs(table: type) -> dict[str, str]:
    """The string below each field, read from the source apart from the command line's reader."""
    body = ast.parse(inspect.getsource(table)).body[0]
    assert isinstance(body, ast.ClassDef)
    fields = [node.target.id for node in body.body if isinstance(node, ast.AnnAssign)]
    docs = [node.value.value for node in body.body[1:] if isinstance(node, ast.Expr)]
    return {field: " ".join(doc.split()) for field, doc in zip(fields, docs, strict=True)}


def test_help_with_a_configuration_shows_its_values(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["train", "tiny", "--help"]) == 0
    assert "(default: 16)" in capsys.readouterr().out  # batch.size of tiny; 128 otherwise


def test_bare_line_lists_the_commands(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main([]) == 0
    out = capsys.readouterr().out
    assert all(f"\n  {name} " in out for name in ("train", "study", "report", "sample", "eval"))


def test_help_and_package_are_cheap() -> None:
    code = (
        "import sys, jax_rl, jax_rl.cli; jax_rl.load_config('tiny');"
        " jax_rl.cli.main(['train', '--help']); sys.exit('jax' in sys.modules)"
    )
    subprocess.run([sys.executable, "-c", code], check=True, stdout=subprocess.DEVNULL)


def test_command_line_ends_with_the_code_and_no_traceback() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "jax_rl.cli", "train", "tinny"], capture_output=True, text=True
    )
    assert done.returncode == 2
    assert done.stderr.startswith("error: no configuration 'tinny'")
    assert done.stderr.count("\n") == 1


def test_package_exports_lazily_and_refuses_the_rest() -> None:
    assert jax_rl.Config is Config
    assert jax_rl.UserError is UserError
    with pytest.raises(AttributeError, match="nothing_of_that_name"):
        _ = jax_rl.nothing_of_that_name
