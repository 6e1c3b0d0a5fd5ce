"""The file of chips: what it says, and what a user's file may say."""

import dataclasses
from pathlib import Path

import pytest

from jax_rl.costs.chips import PACKAGED, Chip, find_by_kind, find_chip, load_chips
from jax_rl.errors import UserError

MINE = """
[mine]
platform = "cpu"
device_kind = ["cpu"]
flops = { bfloat16 = 1e12, float32 = 5e11 }
memory_bytes = 8589934592
memory_bandwidth = 40e9
link_bandwidth = 10e9
network_bandwidth = 1e9
devices_per_host = 1
source = "measured here"
"""


def write(path: Path, text: str) -> Path:
    file = path / "chips.toml"
    file.write_text(text)
    return file


def test_packaged_chips_are_complete() -> None:
    chips = load_chips()
    assert {
        "v4",
        "v5e",
        "v5p",
        "v6e",
        "tpu7x",
        "a100-40",
        "a100-80",
        "h100",
        "h200",
        "b200",
    } == set(chips)
    kinds = [kind for chip in chips.values() for kind in chip.device_kind]
    assert len(kinds) == len(set(kinds))
    for chip in chips.values():
        # What holds for all of them: an accelerator's balance, and slower ways farther out.
        assert 100 < chip.flops["bfloat16"] / chip.memory_bandwidth < 1000
        assert chip.network_bandwidth < chip.link_bandwidth < chip.memory_bandwidth
        assert chip.flops["float32"] <= chip.flops["bfloat16"]
        assert 15 <= chip.memory_bytes / 2**30 < 256
        assert "20" in chip.source


def test_numbers_are_of_one_device() -> None:
    chips = load_chips()
    # 7380 GB/s and 192 GiB are those of a chip, which shows two devices.
    assert chips["tpu7x"].memory_bandwidth == 7380e9 / 2
    assert 0.98 < chips["tpu7x"].memory_bytes / (192 * 2**30 // 2) < 1
    assert chips["v5p"].memory_bytes / 2**30 == pytest.approx(95.73)
    # SMs x tensor cores x multiply-adds per clock x 2 x clock of the H100.
    assert chips["h100"].flops["bfloat16"] == pytest.approx(132 * 4 * 512 * 2 * 1.8295e9, rel=1e-3)


def test_chips_are_found_by_what_a_device_says() -> None:
    chips = load_chips()
    named = {
        "TPU v4": "v4",
        "TPU v5 lite": "v5e",
        "TPU v5": "v5p",
        "TPU v6 lite": "v6e",
        "TPU7x": "tpu7x",
        "NVIDIA H100 80GB HBM3": "h100",
        "NVIDIA H200": "h200",
    }
    for kind, name in named.items():
        chip = find_by_kind(kind, chips)
        assert chip is not None
        assert chip.name == name
    assert find_by_kind("cpu", chips) is None


def test_a_chip_that_is_not_there() -> None:
    with pytest.raises(UserError, match=r"unknown chip 'h20'.*did you mean 'h200'"):
        find_chip("h20", load_chips())


def test_a_user_adds_and_replaces_chips(tmp_path: Path) -> None:
    chips = load_chips(write(tmp_path, MINE + MINE.replace("[mine]", "[h100]")))
    assert find_chip("mine", chips) == Chip(
        name="mine",
        platform="cpu",
        device_kind=("cpu",),
        flops={"bfloat16": 1e12, "float32": 5e11},
        memory_bytes=8 * 2**30,
        memory_bandwidth=40e9,
        link_bandwidth=10e9,
        network_bandwidth=1e9,
        devices_per_host=1,
        source="measured here",
    )
    assert chips["h100"] == dataclasses.replace(chips["mine"], name="h100")
    assert "v5p" in chips
    assert load_chips(PACKAGED) == load_chips()


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (("memory_bytes", "memory_byte"), "unknown key 'memory_byte'.*did you mean 'memory_bytes'"),
        (("devices_per_host = 1\n", ""), "devices_per_host must be given"),
        (('"cpu"\n', '"gpu"\n'), "platform = 'gpu' must be one of tpu, cuda, cpu"),
        (('["cpu"]', '"cpu"'), "device_kind = 'cpu' must be a list"),
        (("bfloat16 =", "float16 ="), "flops = .* must give bfloat16 and float32"),
        (("5e11", "-5e11"), "flops.float32 = .* must be a number above 0"),
        (("40e9", "inf"), "memory_bandwidth = inf must be a number above 0"),
        (("8589934592", "8e9"), "memory_bytes = 8000000000.0 must be a whole number"),
        (('"measured here"', '""'), "source = '' must say"),
        (("[mine]", "[[mine]]"), "a table with the numbers of a chip was expected"),
        (("[mine]", "[mine"), "not TOML"),
    ],
)
def test_files_that_are_refused(tmp_path: Path, change: tuple[str, str], message: str) -> None:
    file = write(tmp_path, MINE.replace(*change))
    with pytest.raises(UserError, match=message) as caught:
        load_chips(file)
    assert str(file) in str(caught.value)


def test_a_file_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="cannot be read"):
        load_chips(tmp_path / "none.toml")
