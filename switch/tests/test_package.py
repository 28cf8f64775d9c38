# SPDX-License-Identifier: Apache-2.0
"""Parts of a package: the installed program, manual pages, completions, the version."""

import os
import re
import shutil
import subprocess
import tomllib
from pathlib import Path

import pytest

from accesspoint.checks.harness.apswitch import BINARY, ROOT

SUBCOMMANDS = ("explain", "trace", "completions", "man")


@pytest.fixture(autouse=True)
def built() -> None:
    if not BINARY.exists():
        pytest.fail(f"{BINARY} is missing; build it with: make switch")


def said(*words: str) -> str:
    return subprocess.run([BINARY, *words], capture_output=True, text=True, check=True).stdout


def long_options(*subcommand: str) -> set[str]:
    """Return the options that `--help` lists."""
    return set(re.findall(r"^ +(?:-\w, )?(--[a-z0-9-]+)", said(*subcommand, "--help"), re.M))


def test_the_version_is_that_of_the_crate() -> None:
    version = tomllib.loads((ROOT / "Cargo.toml").read_text())["workspace"]["package"]["version"]
    assert said("--version") == f"apswitch {version}\n"


def test_the_manual_page_holds_every_option_and_the_notes() -> None:
    page = said("man").replace("\\-", "-")
    assert page.count(".TH apswitch 1") == 1
    assert long_options() > {"--interface", "--link"}
    assert not {option for option in long_options() if f"\\fB{option}\\fR" not in page}
    assert not {name for name in SUBCOMMANDS if f"apswitch-{name}(1)" not in page}
    notes = page.split(".SH NOTES")[1]
    assert "PORT:rate=1mbit        bit/s over all queues" in notes, "the notes' columns are kept"


@pytest.mark.parametrize("name", SUBCOMMANDS)
def test_a_subcommand_has_a_page_of_its_own(name: str) -> None:
    page = said("man", name).replace("\\-", "-")
    assert f".TH apswitch-{name} 1" in page
    assert not {option for option in long_options(name) if option not in page}


@pytest.mark.skipif(not shutil.which("man"), reason="man is missing; install man-db")
@pytest.mark.parametrize("words", [("man",), ("man", "explain")])
def test_man_shows_the_page_without_a_warning(words: tuple[str, ...], tmp_path: Path) -> None:
    page = tmp_path / "page.1"
    page.write_text(said(*words))
    environment = os.environ | {"MANWIDTH": "100", "LC_ALL": "C"}
    done = subprocess.run(["man", "--warnings", "-l", page], capture_output=True, text=True, env=environment)
    assert (done.returncode, done.stderr) == (0, "")
    assert "SYNOPSIS" in done.stdout


def test_an_unknown_page_is_named() -> None:
    done = subprocess.run([BINARY, "man", "nothing"], capture_output=True, text=True)
    assert done.returncode == 2
    assert (
        done.stderr == "apswitch man: there is no subcommand `nothing`: name one of explain, trace, completions, man\n"
    )


@pytest.mark.parametrize(
    ("words", "wanted"),
    [
        (["apswitch", "--gr"], ["--grpc-server-addr"]),
        (["apswitch", "--log-format", ""], ["text", "json"]),
        (["apswitch", "completions", "f"], ["fish"]),
        (["apswitch", "exp"], ["explain"]),
    ],
)
def test_bash_completes(words: list[str], wanted: list[str], tmp_path: Path) -> None:
    completions = tmp_path / "apswitch"
    completions.write_text(said("completions", "bash"))
    # As bash calls it: the command, the word at the cursor, the one before.
    script = """source "$1"; shift; COMP_WORDS=("$@"); COMP_CWORD=$(($# - 1))
        complete -p apswitch >/dev/null; _apswitch apswitch "${!#}" "${COMP_WORDS[COMP_CWORD - 1]}"
        printf '%s\\n' "${COMPREPLY[@]}" """
    command = ["bash", "-eu", "-c", script, "bash", completions, *words]
    done = subprocess.run(command, capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.split() == wanted


@pytest.mark.parametrize("shell", ["zsh", "fish"])
def test_other_shells_have_every_option(shell: str, tmp_path: Path) -> None:
    text = said("completions", shell)
    spelled = "-l {}" if shell == "fish" else "--{}"
    bare = {option.removeprefix("--") for option in long_options()}
    assert not {option for option in bare if spelled.format(option) not in text}
    if shutil.which(shell):
        file = tmp_path / "completions"
        file.write_text(text)
        subprocess.run([shell, "-n", file], check=True)


@pytest.mark.long
@pytest.mark.timeout(1200)  # a build, where the one of `make switch` is not fresh
def test_cargo_installs_it(tmp_path: Path) -> None:
    if not shutil.which("cargo"):
        pytest.skip("cargo is missing; install Rust 1.95 or newer")
    command: list[str | Path] = [
        "cargo",
        "install",
        "--locked",
        "--offline",
        "--quiet",
        "--path",
        ROOT / "switch/cli",
        "--bin",
        "apswitch",
        "--bin",
        "simple_switch_grpc",
        "--bin",
        "simple_switch",
    ]
    subprocess.run([*command, "--root", tmp_path], check=True)
    for name in ("apswitch", "simple_switch_grpc", "simple_switch"):
        installed = subprocess.run([tmp_path / "bin" / name, "--version"], capture_output=True, text=True, check=True)
        assert installed.stdout == said("--version")
