# SPDX-License-Identifier: Apache-2.0
"""Every block of the pages that is no script has a judge, as test_docs.py has the scripts.

What a program prints is compared with what it prints where its commands are executed, here or by the room's own test.
Commands that this machine must not run, or cannot (they install, need another's checkout, hardware or a registry), are
held to what their programs take: each is there, and knows each option. Drawings name things that exist.
Steps of the quick starts (```bash) are executed by tests/test_quickstarts.py.
"""

import ast
import functools
import itertools
import json
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.pages import ROOT, Block, blocks, like, words_of

BUILT = {"apswitch": "target/release/apswitch", "hosts": "target/release/hosts"}


@functools.cache
def told(*words: str) -> str:
    done = subprocess.run(words, cwd=ROOT, capture_output=True, text=True, timeout=240)
    return done.stdout + done.stderr


def options_are_known(program: list[str], rest: list[str]) -> None:
    """Check that the options of a call are in the program's help, or in that of the subcommand that is named first."""
    options = {word.partition("=")[0] for word in rest if re.match(r"--?[a-zA-Z]", word)}
    subcommands = [word for word in rest[:2] if re.fullmatch(r"[a-z][a-z-]+", word)]
    helps = "\n".join(told(*program, *subcommands[:depth], "--help") for depth in range(len(subcommands) + 1))
    helps += (ROOT / program[-1]).read_text() if program[-1].endswith(".py") else ""
    unknown = {option for option in options if not re.search(rf"(?<![\w-]){re.escape(option)}(?![\w-])", helps)}
    assert not unknown, f"{' '.join(program)} knows no {unknown}"


def python_knows(words: list[str]) -> None:
    if words[0] == "-m":
        program, rest = [sys.executable, "-m", words[1]], words[2:]
    else:
        program, rest = [sys.executable, words[0]], words[1:]
        assert (ROOT / words[0]).exists()
    options_are_known(program, rest)


def is_in_the_checkout(word: str) -> bool:
    path = re.sub(r"^/opt/access-point/", "", word)
    return (ROOT / path).exists()


def packages(words: list[str]) -> None:
    """Debian's are those that tools/install.sh, a message or the README's first step asks for; the others are made by
    `make dist`."""
    first = re.findall(r"`apt-get install (.*?)`", (ROOT / "README.md").read_text())
    asked = (ROOT / "tools/install.sh").read_text() + "".join(p.read_text() for p in ROOT.glob("topologies/**/*.py"))
    asked += " ".join(first)
    for word in words:
        if made := re.fullmatch(r"\./([a-z-]+)_\*\.deb", word):
            assert (ROOT / "packaging/debian" / made[1]).is_dir()
        elif word not in ("install", "-y"):
            assert re.search(rf"(?<![\w-]){re.escape(word)}(?![\w-])", asked), word


def podman(words: list[str]) -> None:
    for before, word in itertools.pairwise(words):
        if before == "-f":
            assert is_in_the_checkout(word)
    if "apswitch" in words:
        options_are_known([BUILT["apswitch"]], words[words.index("apswitch") + 1 :])
    if "access-point-controller" in words:
        python_knows(["-m", "accesspoint.controller", *words[words.index("access-point-controller") + 1 :]])
    if "access-point-lab" in words and words[0] == "run":
        python_knows(["-m", "accesspoint.topologies.lab", *words[words.index("access-point-lab") + 1 :]])


def units(words: list[str]) -> None:
    for unit in (word for word in words if word.startswith("access-point-")):
        assert list(ROOT.glob(f"controller/**/{unit}.service")), unit


def transient_unit(words: list[str]) -> None:
    """Check a command that is to run later: Debian 12's systemd keeps its `;` as `\\;`, which a shell takes for a word
    once `apctl init` has let systemd read its units again."""
    assert ";" not in "".join(words)


def make(words: list[str]) -> None:
    words = [word for word in words if word not in ("-C", "/opt/access-point")]
    done = subprocess.run(["make", "-n", *words], cwd=ROOT, capture_output=True, text=True, timeout=240)
    assert done.returncode == 0, done.stderr


def files(words: list[str]) -> None:
    named = [word for word in words if word.startswith("/opt/access-point/")]
    assert all(map(is_in_the_checkout, named)), named


def cargo(words: list[str]) -> None:
    for before, word in itertools.pairwise(words):
        if before in ("--path", "--manifest-path"):
            assert is_in_the_checkout(word)
    if shutil.which("cargo"):
        options_are_known(["cargo"], words)


def program(name: str) -> Callable[[list[str]], None]:
    def judge(words: list[str]) -> None:
        if not (ROOT / BUILT[name]).exists():
            pytest.skip(f"{name} is not built: make switch hosts")
        options_are_known([BUILT[name]], words)

    return judge


def fuzz(words: list[str]) -> None:
    assert list(ROOT.glob(f"switch/**/fuzz_targets/{words[0]}.rs"))


def tofino(words: list[str]) -> None:
    """Check a command of Intel's own programs: its files are those that p4c made of this program."""
    assert all(Path(word).stem == "ap_tna" for word in words if "out/tofino/" in word)


def nats(words: list[str]) -> None:
    """Check a command of NATS: its configuration has the name of a file that the project's command writes."""
    written = (ROOT / "controller/fleet/credentials.py").read_text()
    assert all(f'"{Path(word).name}"' in written for word in words if word.endswith(".conf"))


def wheels(words: list[str]) -> None:
    """Check the names of wheels that `make dist` makes: each is named where it is."""
    from tools.dist.wheels import PACKED

    project = (ROOT / "pyproject.toml").read_text().replace("-", "_")
    for word in words:
        if word.endswith(".whl"):
            name = word.partition("-")[0]
            assert name in PACKED.values() or f'name = "{name}"' in project


PROGRAMS: dict[str, Callable[[list[str]], None]] = {
    "make": make,
    "python": python_knows,
    "python3": python_knows,
    "apctl": lambda words: options_are_known(["./apctl"], words),
    "apswitch": program("apswitch"),
    "hosts": program("hosts"),
    "cargo": cargo,
    "apt": packages,
    "apt-get": packages,
    "nats-server": nats,
    "podman": podman,
    "systemctl": units,
    "journalctl": units,
    "run.sh": fuzz,
    "cd": lambda words: None,
    "cp": files,
    "git": files,
    "iw": lambda words: None,
    "ssh": lambda words: None,
    "systemd-run": transient_unit,
    "p4c-bm2-ss": lambda words: None,
    "setcap": lambda words: None,
    "gzip": lambda words: None,
    "pip": wheels,
    "veth_setup.sh": tofino,
    "run_tofino_model.sh": tofino,
    "run_switchd.sh": tofino,
}


def commands(block: Block) -> None:
    for line in block.commands:
        # Words behind two blanks explain the command.
        for words in words_of(re.split(r"\s{2,}", line)[0].partition(" > ")[0]):
            name = words[0].rpartition("/")[2]
            if words[0] in ("ap/bin/python",):  # an example, in an environment of the reader's own
                assert (ROOT / "examples" / words[1]).exists()
                continue
            assert name in PROGRAMS, f"who judges `{words[0]}`?"
            PROGRAMS[name](words[1:])


def vocabulary(*patterns: str) -> Callable[[Block], None]:
    """A run of another time: each word and key that it shows is one that the program has."""

    def judge(block: Block) -> None:
        sources = [path for pattern in patterns for path in ROOT.glob(pattern) if "target" not in path.parts]
        known = "\n".join(path.read_text() for path in sources)
        shown = set(re.findall(r"(?<![\w./-])[A-Za-z_]{3,}(?![\w./-])", block.text))
        missing = {word for word in shown if not re.search(rf"(?<![A-Za-z]){word}(?![A-Za-z])", known)}
        assert not missing, f"nothing says {missing}"

    return judge


def bmv2_options(block: Block) -> None:
    """Check that `simple_switch_grpc` takes the options."""
    known = (ROOT / "switch/cli/src/bmv2.rs").read_text()
    assert all(f'("{option}", "' in known for option in re.findall(r"--([a-z-]+)", block.text))


def drawing(block: Block) -> None:
    """Check that the files that a drawing names, with a slash or an ending, are there."""
    for word in re.findall(r"[\w*]+(?:[./][\w*]+)+", block.text):
        if re.search(r"\.(p4|py)$", word):
            assert list(ROOT.glob(f"**/{word}")), word


def traced(block: Block) -> None:
    """Each line a module and what is called in it."""
    for line in block.text.splitlines():
        module, function = line.split()[:2]
        places = [path for path in ROOT.glob(f"controller/**/{module}") if "tests" not in path.parts]
        assert any(f"def {function}(" in path.read_text() for path in places), line


def elsewhere(path: str, mark: str) -> Callable[[Block], None]:
    """A room's own test executes it, and finds it by this."""

    def judge(block: Block) -> None:
        assert mark in (ROOT / path).read_text()

    return judge


def calls_of(path: str) -> Callable[[Block], None]:
    """Imports and calls, with arguments, of an example that a test runs; the values are others."""

    def judge(block: Block) -> None:
        there = {
            ast.dump(node) for node in ast.walk(ast.parse((ROOT / path).read_text())) if isinstance(node, ast.alias)
        }
        example = (ROOT / path).read_text()
        for node in ast.walk(ast.parse(block.text)):
            if isinstance(node, ast.alias):
                assert ast.dump(node) in there, node.name
            elif isinstance(node, ast.Call):
                assert f"{ast.unparse(node.func)}(" in example
                assert all(f"{keyword.arg}=" in example for keyword in node.keywords)

    return judge


def configuration(block: Block) -> None:
    from accesspoint.controller.config import Pipeline

    Pipeline.model_validate(json.loads(f"{{{block.text}}}")["pipeline"])


def settings(block: Block) -> None:
    fields = (ROOT / "controller/api").rglob("*.py")
    known = "".join(path.read_text() for path in fields) + (ROOT / "controller/config.py").read_text()
    assert all(re.search(rf"\b{name}\b", known) for name in json.loads(block.text))


def in_order(block: Block) -> None:
    """A look at a configuration, which here has two access points, too."""
    command, shown = block.text.splitlines()
    ports = [{"port": n, "role": role, "capacity_bps": "auto"} for n, role in ((1, "station"), (2, "uplink"))]
    given = [{"name": name, "address": "127.0.0.1:9559", "ports": ports} for name in ("ap1", "ap2")]
    with tempfile.TemporaryDirectory() as directory:
        (Path(directory) / "access-points.json").write_text(json.dumps({"access_points": given}))
        words = command.replace("access-points.json", f"{directory}/access-points.json").split()
        assert told(sys.executable, *words[1:]).replace(f"{directory}/", "").strip() == shown


def story(block: Block) -> None:
    """Check the page's story of one packet of the example."""
    if not (ROOT / BUILT["apswitch"]).exists():
        pytest.skip("apswitch is not built: make switch")
    assert block.before
    assert like(block.text, told(*block.before.commands[0].split()))


def links(block: Block) -> None:
    """The switch takes them: what it then lacks is the interface."""
    if not (ROOT / BUILT["apswitch"]).exists():
        pytest.skip("apswitch is not built: make switch")
    ports = ["--no-p4", "-i", "2@none", "--grpc-server-addr", "127.0.0.1:0"]
    assert "none" in told(BUILT["apswitch"], *ports, *block.text.split())


HOSTS = vocabulary("hosts/**/*.rs", "hosts/tests/*.py", "docs/hosts/*.md")
INSTALL = vocabulary("controller/**/*.py", "controller/**/*.service")
# (page, how the block begins) -> its judge; a page's other blocks ```text are commands.
JUDGES: dict[tuple[str, str], Callable[[Block], None]] = {
    ("docs/architecture.md", "p4src/"): drawing,
    ("docs/controller/README.md", "python -m accesspoint.controller --config access-points.json --check"): in_order,
    ("docs/controller/apctl.md", "ok "): INSTALL,
    ("docs/controller/laws.md", "{"): settings,
    ("docs/controller/loop.md", "loop.py"): traced,
    ("docs/controller/loop.md", "api/access_points.py"): traced,
    ("docs/controller/operate.md", "wrote "): INSTALL,
    ("docs/controller/operate.md", "error "): INSTALL,
    ("docs/effects.md", "error: my.trace"): vocabulary("topologies/**/*.py", "switch/**/*.rs"),
    ("docs/hosts/batcp-proxy.md", "program --"): drawing,
    ("docs/hosts/probe-buffer.md", " packet "): HOSTS,
    ("docs/hosts/sessions.md", "{\n"): elsewhere("hosts/tests/test_sessions.py", "```json"),
    ("docs/hosts/sessions.md", '{"kind"'): HOSTS,
    ("docs/hosts/sessions.md", "$ hosts sessions"): HOSTS,
    ("README.md", "                down"): vocabulary("experiments/**/*.py"),
    ("docs/install.md", "    2.31 MB"): vocabulary("packaging/debian/*/control", "tools/dist/*.py"),
    ("docs/library.md", "from accesspoint.wifi"): calls_of("examples/roaming.py"),
    ("docs/ns3.md", "#include"): elsewhere("topologies/tests/test_ns3.py", "```cpp"),
    ("docs/ns3.md", "down "): elsewhere("topologies/tests/test_ns3.py", "It prints"),
    ("docs/switch/explain.md", "    table"): story,
    ("docs/switch/trace.md", "$ apswitch"): elsewhere("switch/tests/test_trace.py", "docs/switch/trace.md"),
    ("docs/switch/library.md", "#include"): elsewhere("switch/tests/test_simulation.py", "```c"),
    ("docs/switch/library.md", "1.0 s"): elsewhere("switch/tests/test_simulation.py", "It prints"),
    ("docs/switch/bmv2.md", "simple_switch_grpc"): bmv2_options,
    ("docs/switch/p4runtime.md", "INFO client"): vocabulary(
        "switch/*/src/**/*.rs", "p4src/stages/*.p4", "switch/tests/test_log.py"
    ),
    ("docs/switch/queues.md", "enqueue"): drawing,
    ("docs/switch/queues.md", "gnmic"): elsewhere("switch/tests/test_gnmi.py", '"gnmic "'),
    ("docs/switch/queues.md", "--link"): links,
    ("docs/targets.md", "station --"): drawing,
    ("docs/tofino.md", '"pipeline"'): configuration,
    ("docs/wifi.md", "sta1 )))"): drawing,
}


def judge(block: Block) -> Callable[[Block], None]:
    own = [judge for (page, text), judge in JUDGES.items() if page == block.page and block.text.startswith(text)]
    return own[0] if own else commands


def printed_here(block: Block) -> bool:
    """The block above it was executed: tests/test_docs.py compares the two."""
    return block.shows and judge(block) is commands and not block.text.startswith(".venv/")


OTHERS = [
    block
    for block in blocks()
    if block.language not in ("sh", "python", "bash", "ini") and not printed_here(block) and not block.shows_a_step
]


@pytest.mark.parametrize("block", OTHERS, ids=str)
def test_a_block_is_true(block: Block) -> None:
    judge(block)(block)


def test_each_judge_has_its_block() -> None:
    gone = {key for key in JUDGES if not any((b.page, True) == (key[0], b.text.startswith(key[1])) for b in OTHERS)}
    assert not gone


def test_numbers_may_differ_and_words_may_not() -> None:
    shown = "3 packets, 0% loss\n...\ntoken ap_...\n"
    assert like(shown, "begin\n12 packets,  0.5% loss\nmore\ntoken ap_xyz\n")
    assert not like(shown, "3 packets, 0% lost\ntoken ap_x\n")
    assert not like(shown, "token ap_x\n3 packets, 0% loss\n"), "in another order"
