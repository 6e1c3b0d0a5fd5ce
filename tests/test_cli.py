"""Command lines: what each calls, and what a wrong one is told."""

import ast
import contextlib
import dataclasses
import inspect
import io
import os
import re
import subprocess
import sys
import types
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from study_records import make_start

import jax_rl
from jax_rl import cli
from jax_rl.config import Config, ModelConfig, TaskConfig
from jax_rl.config_file import config_to_dict
from jax_rl.errors import UserError
from jax_rl.records import RecordWriter
from jax_rl.study.answers import NO_WISHES, Wishes
from jax_rl.study.decisions.cost import Price
from jax_rl.sweep.part import Part


@pytest.fixture
def calls(monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, tuple[Any, ...], dict[str, Any]]]:
    """Stands in for the functions behind the commands, and lists how they were called."""
    made: list[tuple[str, tuple[Any, ...], dict[str, Any]]] = []

    def stand_in(home: str, *names: str) -> None:
        module = types.ModuleType(home)
        for name in names:

            def record(*args: Any, _name: str = name, **kwargs: Any) -> Any:
                made.append((_name, args, kwargs))
                page = Path("report.html")
                return ("summary", page) if _name == "report_study" else page

            setattr(module, name, record)
        monkeypatch.setitem(sys.modules, home, module)

    stand_in("jax_rl.trainer.run", "train")
    stand_in("jax_rl.sweep.run", "run_study")
    stand_in("jax_rl.report.build", "report_study")
    stand_in("jax_rl.report.table", "print_table")
    stand_in("jax_rl.evaluation.sample", "sample")
    stand_in("jax_rl.evaluation.chat", "chat")
    stand_in("jax_rl.evaluation.evaluate", "evaluate")
    stand_in("jax_rl.evaluation.export", "export")
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


def test_study_runs_and_then_reports(
    calls: list[Any], capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    words = ["study", "tiny", "--dir", str(tmp_path), "--study.seeds", "5"]
    # A worker that finds its runs taken, and no record yet, has nothing to report.
    assert cli.main(words) == 0
    assert [name for name, _, _ in calls] == ["run_study"]
    assert f"jax-rl report {tmp_path}" in capsys.readouterr().out
    calls.clear()
    (tmp_path / "cells" / "b00008_s0").mkdir(parents=True)
    (tmp_path / "cells" / "b00008_s0" / "records.jsonl").touch()
    assert cli.main(words) == 0
    assert [name for name, _, _ in calls] == ["run_study", "report_study", "print_table"]
    (_, (config, directory), _), (_, (reported, _), _), *_ = calls
    assert config.study.seeds == 5
    assert directory == reported == tmp_path
    assert "report.html" in capsys.readouterr().out


def test_job_of_an_array_makes_its_part_and_no_report(
    calls: list[Any], capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli.main(["study", "tiny", "--dir", "out", "--cell", "1/4", "--steal"]) == 0
    ((name, _, options),) = calls
    assert (name, options["part"], options["steal"]) == ("run_study", Part(1, 4), True)
    assert "jax-rl report out" in capsys.readouterr().out
    assert cli.main(["study", "tiny", "--cell", "4/4"]) == 2
    assert "--cell 4/4 must be i/n" in capsys.readouterr().err
    assert len(calls) == 1


def test_report_takes_a_directory(calls: list[Any]) -> None:
    assert cli.main(["report", "out"]) == 0
    assert [name for name, _, _ in calls] == ["report_study", "print_table"]
    assert calls[0][1] == (Path("out"), NO_WISHES)


def test_report_takes_a_price_and_tables_of_throughput(
    calls: list[Any], capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["report", "out", "--price", "2.5", "--currency", "EUR", "--throughput", "a.json"]
    assert cli.main([*words, "b.json"]) == 0
    wishes = Wishes(price=Price(2.5, "EUR"), throughput=(Path("a.json"), Path("b.json")))
    assert calls[0][1] == (Path("out"), wishes)
    assert cli.main(["report", "out", "--price", "-1"]) == 2
    assert "price = -1 must be a number of at least 0" in capsys.readouterr().err


@pytest.fixture
def recorded(tmp_path: Path) -> Path:
    """The directory of a run whose configuration is not the default."""
    config = dataclasses.replace(Config(), task=TaskConfig(difficulty=5))
    directory = tmp_path / "run"
    directory.mkdir()
    with contextlib.closing(RecordWriter(directory)) as writer:
        writer.write(make_start(config_to_dict(config), 64, 0))
    return directory


def test_sample_reads_held_out_prompts(calls: list[Any], recorded: Path) -> None:
    assert cli.main(["sample", str(recorded), "--prompts", "3", "--seed", "9"]) == 0
    ((name, (config,), options),) = calls
    assert (name, config.task.difficulty) == ("sample", 5)
    assert options == {"run": recorded, "prompts": 3, "seed": 9, "temperature": None}


@pytest.mark.parametrize(
    ("words", "prompts", "checkpoint"),
    [
        (["RUN", "1+2=", "3+4="], ("1+2=", "3+4="), ""),
        (["tiny", "1+2=", "--max_tokens", "7"], ("1+2=",), ""),
        (["tiny", "--max_tokens", "7", "1+2="], ("1+2=",), ""),
        (["--model", "m", "hi", "and?"], ("hi", "and?"), "m"),
        (["hi", "--model=m"], ("hi",), "m"),
        (["--model", "m", "--text.chat", "never", "hi"], ("hi",), "m"),
    ],
)
def test_prompts_of_ones_own_are_a_chat(
    words: list[str],
    prompts: tuple[str, ...],
    checkpoint: str,
    calls: list[Any],
    recorded: Path,
) -> None:
    assert cli.main(["sample", *(str(recorded) if w == "RUN" else w for w in words)]) == 0
    ((name, (config, said), options),) = calls
    assert (name, said, config.model.checkpoint) == ("chat", prompts, checkpoint)
    assert options == {
        "run": recorded if "RUN" in words else None,
        "seed": 0,
        "temperature": None,
        "max_tokens": 7 if "7" in words else 512,
    }
    assert config.text.chat == ("never" if "never" in words else "auto")


def test_a_model_without_a_prompt_reads_what_is_typed(
    calls: list[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "stdin", io.StringIO("hi\n\n  and?\nlast"))
    assert cli.main(["sample", "--model", "m"]) == 0
    ((name, (_, turns), _),) = calls
    assert (name, list(turns)) == ("chat", ["hi", "  and?", "last"])


def test_eval_takes_a_run_with_overrides(calls: list[Any], recorded: Path) -> None:
    line = ["eval", str(recorded), "--samples_per_prompt", "4", "--output", "rows.jsonl"]
    assert cli.main([*line, "--task.validation", "o.jsonl", "--correct_from", "0.5"]) == 0
    ((name, (config,), options),) = calls
    assert (name, config.task.difficulty, config.task.validation) == ("evaluate", 5, "o.jsonl")
    assert options == {
        "run": recorded,
        "prompts": None,
        "samples_per_prompt": 4,
        "temperature": None,
        "correct_from": 0.5,
        "output": Path("rows.jsonl"),
    }


def test_eval_takes_a_configuration(calls: list[Any], tmp_path: Path) -> None:
    assert cli.main(["eval", "tiny", "--prompts", "0", "--temperature", "0.5"]) == 0
    (tmp_path / "plain.toml").write_text("")  # all defaults: the task is as it is meant
    assert cli.main(["eval", str(tmp_path / "plain.toml")]) == 0
    (_, (config,), options), (_, (plain,), _) = calls
    assert (config, plain) == (jax_rl.load_config("tiny"), Config())
    assert (options["run"], options["prompts"], options["temperature"]) == (None, 0, 0.5)


def test_a_model_takes_the_place_of_the_configurations_own(calls: list[Any]) -> None:
    numerics = ["--model.compute_dtype", "bfloat16"]
    assert cli.main(["eval", "arithmetic", "--model", "m", *numerics]) == 0
    assert cli.main(["eval", "--model", "m", "--task.name", "partition"]) == 0
    assert (
        cli.main(["eval", "--model", "m", "--task.name", "partition", "--model.layers", "9"]) == 0
    )
    first, second, third = (args[0] for _, args, _ in calls)
    assert first.task == jax_rl.load_config("arithmetic").task
    assert first.model == ModelConfig(checkpoint="m", compute_dtype="bfloat16")
    assert first.warm_start.updates == 0
    assert (second.task.name, second.model) == ("partition", ModelConfig(checkpoint="m"))
    assert third.model.layers == 9  # compared with the checkpoint's, where that is read
    assert all(options["run"] is None for _, _, options in calls)


def test_export_takes_two_directories(calls: list[Any]) -> None:
    assert cli.main(["export", "runs/first", "out", "--dtype", "float16"]) == 0
    assert cli.main(["export", "runs/first", "out", "--layout", "fsdp"]) == 0
    assert [call[:2] for call in calls] == [("export", (Path("runs/first"), Path("out")))] * 2
    assert [options for _, _, options in calls] == [
        {"dtype": "float16", "layout": None},
        {"dtype": "bfloat16", "layout": "fsdp"},
    ]


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
        ("train tiny other", ["Unrecognized", "other"]),
        ("sample nowhere", ["'nowhere'", "Known:", "tiny"]),
        ("sample", ["the policy comes first", "RUN", "tiny", "--model DIR"]),
        ("sample --seed 3 tiny", ["the policy comes first"]),
        ("eval tiny other", ["Unrecognized", "other"]),
        ("eval --model m", ["say what to evaluate on", "--task.name"]),
        ("export run out --dtype int8", ["dtype", "bfloat16"]),
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
        ("study tiny", "jax_rl.sweep.run", "run_study", "runs/tiny; the same command continues"),
        ("sample tiny x", "jax_rl.evaluation.chat", "chat", "nothing was written"),
        ("export run out", "jax_rl.evaluation.export", "export", "out is only there once"),
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
    for key, value, words in list_fields(Config(), ""):
        head, _, name = key.rpartition(".")
        flag, default = re.escape(f"--{key}"), re.escape(f"{words} (default: {value})")
        several = r"(?: \[[A-Z{][^ ]* \.\.\.\]\])?"
        usage = rf"{flag} [\[A-Z{{][^ ]*{several}|{flag}, --{re.escape(head)}\.no_{name}"
        assert re.search(rf"(?:{usage}) {default}", text), key


def list_fields(table: Any, path: str) -> Iterator[tuple[str, str, str]]:
    """Dotted name, default as the help shows it, and words of every field."""
    docs = read_field_docs(type(table)) if path else {}
    for field in dataclasses.fields(table):
        key, value = f"{path}{field.name}", getattr(table, field.name)
        if dataclasses.is_dataclass(value):
            yield from list_fields(value, f"{key}.")
        else:
            shown = " ".join(value) if isinstance(value, tuple) else str(value)
            shown = repr(value) if value == "" else shown
            yield key, shown, docs[field.name]


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


@pytest.mark.parametrize("line", ["train --help", "sample tiny --help", "", "train tinny"])
def test_a_reader_that_leaves_is_no_error(line: str) -> None:
    code = f"import sys; from jax_rl.cli import main; sys.exit(main({line.split()!r}))"
    running = subprocess.Popen(
        [sys.executable, "-c", code],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONUNBUFFERED": ""},  # what is buffered is written at the exit
    )
    assert running.stdout is not None
    assert running.stderr is not None
    running.stdout.close()
    with running.stderr:
        written = running.stderr.read()
    assert running.wait() == (2 if "tinny" in line else 0)
    assert "Traceback" not in written
    assert "BrokenPipe" not in written


def test_help_hides_what_is_not_an_option(capsys: pytest.CaptureFixture[str]) -> None:
    for command in ("sample", "eval"):
        assert cli.main([command, "--help"]) == 0
        shown = capsys.readouterr().out
        assert "--source" not in shown
        assert "fixed" not in shown.split("task options")[0]


def test_package_exports_lazily_and_refuses_the_rest() -> None:
    assert jax_rl.Config is Config
    assert jax_rl.UserError is UserError
    with pytest.raises(AttributeError, match="nothing_of_that_name"):
        _ = jax_rl.nothing_of_that_name
