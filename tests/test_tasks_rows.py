import csv
import subprocess
import sys

import pytest

from jax_rl.errors import UserError
from jax_rl.tasks.rows import Row, read_rows


def write(tmp_path, name, data):
    file = tmp_path / name
    file.write_bytes(data if isinstance(data, bytes) else data.encode())
    return str(file)


def read(path):
    return read_rows(path, field="task.train")


def refuse(path, match):
    with pytest.raises(UserError, match=match):
        read(path)


def test_jsonl_keeps_line_numbers_over_blank_lines(tmp_path):
    path = write(tmp_path, "a.jsonl", '{"q": "x", "n": 1}\n\n  \r\n{"q": "y", "n": [2, null]}\r\n')
    assert read(path) == [
        Row({"q": "x", "n": 1}, f"{path}:1"),
        Row({"q": "y", "n": [2, None]}, f"{path}:4"),
    ]


def test_jsonl_lines_end_at_line_feeds_alone(tmp_path):
    # JSON has these inside of strings; str.splitlines would cut there.
    text = "a\u2028b\u0085c"
    path = write(tmp_path, "a.jsonl", f'{{"q": "{text}"}}\n{{"q": "z"}}')
    assert [row.values["q"] for row in read(path)] == [text, "z"]
    assert read(path)[1].place == f"{path}:2"


def test_json_is_a_list_or_an_object_with_one_list(tmp_path):
    path = write(tmp_path, "a.json", '[{"q": 1},\n {"q": 2}]')
    assert read(path) == [Row({"q": 1}, f"{path}: row 1"), Row({"q": 2}, f"{path}: row 2")]
    path = write(tmp_path, "b.json", '{"version": 1, "data": [{"q": 1}]}')
    assert read(path) == [Row({"q": 1}, f"{path}: row 1")]


def test_json_with_an_object_a_line_is_read_as_such(tmp_path):
    path = write(tmp_path, "a.json", '{"q": [1]}\n{"q": [2]}\n')
    assert read(path) == [Row({"q": [1]}, f"{path}:1"), Row({"q": [2]}, f"{path}:2")]
    refuse(write(tmp_path, "b.json", '{"q": 1}\n{"q": '), r"b.json:2: not valid JSON")


def test_csv_has_texts_and_the_line_at_which_a_row_starts(tmp_path):
    path = write(tmp_path, "a.csv", 'q,a\n"x, ""y""\nz",1\n\n2+2,4\n')
    assert read(path) == [
        Row({"q": 'x, "y"\nz', "a": "1"}, f"{path}:2"),
        Row({"q": "2+2", "a": "4"}, f"{path}:5"),
    ]


def test_csv_takes_long_fields_and_leaves_the_modules_limit_as_it_was(tmp_path):
    csv.field_size_limit(before := 131_072)  # the module's own; an earlier test may have left more
    path = write(tmp_path, "a.csv", "q,a\n" + "x" * 200_000 + ",1\n")
    assert len(read(path)[0].values["q"]) == 200_000
    refuse(write(tmp_path, "b.csv", 'q\n"x\n'), r"b.csv:2: not valid CSV")
    assert csv.field_size_limit() == before


def test_parquet_rows_are_plain_values(tmp_path):
    pyarrow = pytest.importorskip("pyarrow")
    parquet = pytest.importorskip("pyarrow.parquet")
    path = str(tmp_path / "a.parquet")
    table = pyarrow.table({"nums": [[3, 7], [2]], "target": [10, 2], "q": ["x", None]})
    parquet.write_table(table, path)
    assert read(path) == [
        Row({"nums": [3, 7], "target": 10, "q": "x"}, f"{path}: row 1"),
        Row({"nums": [2], "target": 2, "q": None}, f"{path}: row 2"),
    ]
    refuse(write(tmp_path, "b.parquet", "not parquet"), "b.parquet: not a valid Parquet file")


def test_parquet_without_its_package_says_what_to_install(tmp_path):
    path = write(tmp_path, "a.parquet", "")
    program = (
        "import sys; sys.modules['pyarrow'] = None\n"
        "from jax_rl.errors import UserError\n"
        "from jax_rl.tasks.rows import read_rows\n"
        "try: read_rows(sys.argv[1], field='task.train')\n"
        "except UserError as error: print(error)"
    )
    out = subprocess.run([sys.executable, "-c", program, path], capture_output=True, text=True)
    assert "pip install 'jax-rl[data]'" in out.stdout, out.stderr


def test_a_byte_order_mark_is_no_part_of_the_text(tmp_path):
    for name, text in (("a.jsonl", '{"q": 1}'), ("a.json", '[{"q": 1}]'), ("a.csv", "q\n1\n")):
        (row,) = read(write(tmp_path, name, b"\xef\xbb\xbf" + text.encode()))
        assert list(row.values) == ["q"]


@pytest.mark.parametrize(
    ("name", "data", "match"),
    [
        ("a.jsonl", '{"q": 1}\n{"q": }\n', r"a.jsonl:2: not valid JSON: Expecting value at char"),
        ("a.jsonl", '{"q": 1}\n[1]\n', r"a.jsonl:2: a list, where a row is an object"),
        ("a.jsonl", '\n"text"', r"a.jsonl:2: a text, where a row"),
        ("a.jsonl", '{"q": NaN}', r"a.jsonl:1: not valid JSON: NaN is no number"),
        ("a.jsonl", '{"q": %s}' % ("9" * 5000), r"a.jsonl:1: not valid JSON"),
        ("a.jsonl", "[" * 200_000, r"a.jsonl:1: not valid JSON"),
        ("a.jsonl", b'{"q": 1}\n\n{"q": "\xe9"}', r"a.jsonl:3: not UTF-8 text \(byte 0xe9 at 17\)"),
        ("a.json", '[{"q": 1},\n{"q" 2}]', r"a.json:2: not valid JSON"),
        ("a.json", '[{"q": 1}, null]', r"a.json: row 2: null, where"),
        ("a.json", '{"train": [], "test": []}', r"2 lists \(train, test\)"),
        ("a.json", '{"q": 1}', r"0 lists \(none\)"),
        ("a.json", "3", r"a number, where a list of rows is right"),
        ("a.csv", "q,a\n1,2\n1,2,3\n", r"a.csv:3: 3 values, where the first line names 2 columns"),
        ("a.csv", "q,q\n1,2\n", r"a.csv:1: two columns are called 'q'"),
        ("a.csv", "q,\n1,2\n", r"a.csv:1: column 2 has no name"),
        ("a.csv", "q,a\n", r"a.csv' has no rows"),
        ("a.jsonl", "\n\n", r"task.train = '.*a.jsonl' has no rows"),
        ("a.json", "[]", r"has no rows"),
        ("a.csv", "", r"has no rows"),
        ("a.txt", "x", r"ends in .jsonl, .json, .csv, .parquet, not in '.txt'"),
    ],
)
def test_files_that_cannot_be_used_are_refused_with_their_line(tmp_path, name, data, match):
    refuse(write(tmp_path, name, data), match)


def test_a_missing_file_and_a_directory_are_refused(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "d.json").mkdir()
    refuse("d.json", "is a directory")
    with pytest.raises(UserError, match=r"task.train = 'none.jsonl' does not exist") as error:
        read("none.jsonl")
    assert str(tmp_path) in str(error.value)
    write(tmp_path, "there.JSONL", '{"q": 1}')
    assert read("there.JSONL") == [Row({"q": 1}, "there.JSONL:1")]
