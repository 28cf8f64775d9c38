# SPDX-License-Identifier: Apache-2.0
"""Tests of `make`'s progress, of the installation of packages, and of the parts of `make test`."""

import importlib.util
import os
import re
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from accesspoint.checks.harness.waiting import eventually

ROOT = Path(__file__).parent.parent
SERVICES = ("/usr/sbin/invoke-rc.d", "/usr/bin/deb-systemd-invoke", "/usr/bin/deb-systemd-helper")
RUNNER = "import sys\nfrom tools import test as runner\n"
CARGO = r"""
printf '   Compiling one v1.0.0\n    Building [=>     ] 3/90: one, two\r' >&2
until grep -q ': 3 of 90' "$SAID"; do sleep 0.1; done
printf 'warning: a thing\n    Building [====>  ] 60/90: three\r' >&2
until grep -q ': 60 of 90' "$SAID"; do sleep 0.1; done
exit $1
"""


def progress(*words: str) -> "subprocess.CompletedProcess[str]":
    return subprocess.run([ROOT / "tools/progress.py", *words], capture_output=True, text=True, timeout=240)


def test_a_long_build_says_how_far_it_is_and_what_it_said_when_it_fails(tmp_path: Path) -> None:
    said = tmp_path / "said"
    words: list[str | Path] = [ROOT / "tools/progress.py", "cargo", "switch", "--", "sh", "-c", CARGO, "sh", "3"]
    with said.open("w") as output:
        own = os.environ | {"SAID": str(said)}
        done = subprocess.run(words, env=own, stdout=output, stderr=subprocess.PIPE, text=True, timeout=240)
    assert done.returncode == 3
    lines = said.read_text().splitlines()
    assert lines[0].startswith("switch: 3 of 90 crates, now one, two (")
    assert "warning: a thing" in lines and any(line.startswith("switch: 60 of 90 crates, now three") for line in lines)
    assert "Compiling one" in done.stderr


def test_a_build_beside_others_of_make_hears_nothing_of_their_places(tmp_path: Path) -> None:
    (tmp_path / "Makefile").write_text(
        f"both: one two\none two:\n\t@{ROOT}/tools/progress.py cargo $@ -- sh -c 'echo flags=$$MAKEFLAGS; exit 1'\n"
    )
    done = subprocess.run(["make", "-k", "-j2"], cwd=tmp_path, capture_output=True, text=True, timeout=240)
    assert [line for line in done.stderr.splitlines() if line.startswith("flags")] == ["flags=", "flags="]


def test_what_is_done_at_once_says_nothing() -> None:
    done = progress("cargo", "switch", "--", "true")
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


@pytest.mark.skipif(os.geteuid() != 0, reason="a mount namespace needs root")
def test_packages_start_no_service_and_the_host_stays_as_it_is() -> None:
    there = [path for path in SERVICES if Path(path).exists()]
    if not there:
        pytest.skip("this system has no invoke-rc.d: nothing could start a service")
    before = [Path(path).read_bytes() for path in there]
    script = "for path; do cmp -s $path /bin/true || exit 9; done"
    covered = subprocess.run([ROOT / "tools/without-services.sh", "sh", "-c", script, "sh", *there])
    assert covered.returncode == 0
    assert [Path(path).read_bytes() for path in there] == before
    assert subprocess.run(["sh", "-c", script, "sh", *there]).returncode == 9


APT = """#!/bin/sh
echo "begin $$" >>"$LOG"; sleep 0.5; echo "end $$" >>"$LOG"
"""


def test_packages_are_installed_by_one_at_a_time(tmp_path: Path) -> None:
    """make runs parts side by side on a machine that lacks what both of them need."""
    tools, log = tmp_path / "bin", tmp_path / "log"
    tools.mkdir()
    for tool in ("bash", "dirname", "id", "sed", "wc", "flock", "env", "sh", "sleep", "python3"):
        (tools / tool).symlink_to(str(shutil.which(tool)))
    (tools / "apt-get").write_text(APT)
    (tools / "apt-get").chmod(0o755)
    (tmp_path / "tools").mkdir()
    shutil.copy(ROOT / "tools/install.sh", tmp_path / "tools")
    for called in ("progress.py", "without-services.sh"):
        (tmp_path / "tools" / called).write_text("#!/bin/sh\n")
        (tmp_path / "tools" / called).chmod(0o755)
    own = {"PATH": str(tools), "LOG": str(log)}
    both = [
        subprocess.Popen([tmp_path / "tools/install.sh", part], env=own, stdout=subprocess.PIPE)
        for part in ("bpf", "packages")
    ]
    for process in both:
        process.communicate(timeout=240)
        assert process.returncode == 0
    words = [line.split() for line in log.read_text().splitlines()]
    assert len(words) == 8 and all(
        (first[0], second[0], first[1]) == ("begin", "end", second[1])
        for first, second in zip(words[::2], words[1::2], strict=True)
    )


def test_a_part_that_is_none_is_named() -> None:
    done = subprocess.run([sys.executable, ROOT / "tools/test.py", "swich"], capture_output=True, text=True)
    assert done.returncode == 2
    assert done.stderr.startswith("error: there is no part 'swich'") and "  switch " in done.stderr


@pytest.mark.parametrize("goal", ["test", "test-all", "quick"])
def test_make_names_a_part_that_is_none_before_it_installs_anything(goal: str, tmp_path: Path) -> None:
    (tmp_path / "tools").mkdir()
    for file in ("Makefile", "tools/test.py"):
        shutil.copy(ROOT / file, tmp_path / file)
    own = {name: value for name, value in os.environ.items() if name not in ("MAKEFLAGS", "MAKELEVEL", "MFLAGS")}
    command = ["make", goal, "PART=swich"]
    done = subprocess.run(command, cwd=tmp_path, env=own, capture_output=True, text=True, timeout=240)
    assert done.returncode == 2 and done.stdout == ""
    assert done.stderr.startswith("error: there is no part 'swich'") and "  switch " in done.stderr


def test_tools_that_make_does_not_install_are_named_at_its_start(tmp_path: Path) -> None:
    (tmp_path / "cargo").write_text("#!/bin/sh\necho cargo 1.63.0\n")
    (tmp_path / "cargo").chmod(0o755)
    (tmp_path / "python3").symlink_to(Path(sys.executable).resolve())
    (tmp_path / "make").symlink_to(str(shutil.which("make")))
    done = subprocess.run(["make", "asked"], cwd=ROOT, env={"PATH": str(tmp_path)}, capture_output=True, text=True)
    errors = [line for line in done.stderr.splitlines() if line.startswith("error: ")]
    assert done.returncode == 2 and len(errors) == 2, done.stderr
    assert errors[0].startswith("error: cc is missing: ") and "apt install gcc" in errors[0]
    assert errors[1].startswith("error: cargo is too old (cargo 1.63.0): ") and "rustup.rs" in errors[1]


def test_quick_takes_the_tests_that_import_what_changed() -> None:
    script = RUNNER + "print(*runner.tests_of({'controller/law/pi2.py', 'tests/test_words.py', 'README.md'}))"
    done = subprocess.run([sys.executable, "-c", script], cwd=ROOT, capture_output=True, text=True, check=True)
    assert {"controller/tests/test_law.py", "tests/test_words.py"} <= set(done.stdout.split())
    assert "controller/tests/test_tls.py" not in done.stdout.split()


def run_as_a_part(folder: Path, *options: str) -> "subprocess.CompletedProcess[str]":
    """Run `make test` of one part, whose tests are in a folder."""
    script = RUNNER + (
        f"runner.PARTS = {{'own': runner.folder('{folder}')}}\n"
        "runner.CONTENTS = {'own': 'a part'}\n"
        f"sys.exit(runner.main(['own', *{options!r}]))\n"
    )
    return subprocess.run([sys.executable, "-c", script], cwd=ROOT, capture_output=True, text=True, timeout=240)


def test_summary_names_what_was_skipped_and_what_failed(tmp_path: Path) -> None:
    (tmp_path / "test_some.py").write_text(
        "import pytest\n"
        "def test_passes(): pass\n"
        "def test_fails(): assert False\n"
        "@pytest.mark.skip(reason='p4c is missing: install p4c')\n"
        "def test_skipped(): pass\n"
    )
    done = run_as_a_part(tmp_path)
    assert done.returncode == 1, done.stderr
    assert "FAILED: 1 failure, 1 passed, 1 skipped" in done.stdout
    assert "1 x p4c is missing: install p4c" in done.stdout


def test_tests_in_real_time_run_with_all_only_and_once(tmp_path: Path) -> None:
    (tmp_path / "test_some.py").write_text(
        "import pytest\nfrom pathlib import Path\n"
        "def test_passes(): pass\n"
        "@pytest.mark.realtime\n"
        "def test_fails():\n"
        "    with Path(__file__).with_name('runs').open('a') as file: file.write('x')\n"
        "    assert False\n"
    )
    done = run_as_a_part(tmp_path)
    assert done.returncode == 0 and "1 passed" in done.stdout, done.stdout
    done = run_as_a_part(tmp_path, "--all")
    assert done.returncode == 1 and "FAILED: 1 failure, 1 passed" in done.stdout, done.stdout
    assert (tmp_path / "runs").read_text() == "x"


def test_a_part_whose_tests_are_all_in_real_time_passes(tmp_path: Path) -> None:
    (tmp_path / "test_some.py").write_text("import pytest\n@pytest.mark.realtime\ndef test_one(): assert False\n")
    assert run_as_a_part(tmp_path).returncode == 0


def test_missing_tools_are_named_at_the_start(tmp_path: Path) -> None:
    script = RUNNER + "runner.TOOLS = {'no-such-tool': 'do it: apt install it'}\nsys.exit(runner.main(['check']))\n"
    done = subprocess.run([sys.executable, "-c", script], cwd=ROOT, capture_output=True, text=True, timeout=240)
    assert done.returncode == 2
    assert done.stderr == "error: no-such-tool is missing: needed to do it: apt install it\n"


@pytest.mark.parametrize("late", [False, True])
def test_interrupt_ends_what_runs_and_begins_nothing_more(tmp_path: Path, late: bool) -> None:
    """late: a command begins after the signal, and did not hear of it."""
    script = RUNNER + (
        "def part(*words):\n"
        "    return lambda outcome, marks: [runner.call(outcome, *words), runner.call(outcome, 'sleep', '600')]\n"
        "begin = 'touch ' + sys.argv[1] + '; sleep 600'\n"
        "runner.PARTS = {'one': part('sleep', '600'), 'two': part('sh', '-c', begin), 'after': part('true')}\n"
        "runner.CONTENTS = dict.fromkeys(runner.PARTS, 'a part')\n"
        "runner.ROWS = (('one',), ('two', 'after'))\n"
        "sys.exit(runner.main([]))\n"
    )
    begun, pipe = tmp_path / "begun", subprocess.PIPE
    command = ["env", "--default-signal=INT", sys.executable, "-c", script, str(begun)]
    running = subprocess.Popen(command, cwd=ROOT, stdout=pipe, stderr=pipe, text=True, process_group=0)
    assert eventually(begun.exists)
    if late:
        os.kill(running.pid, signal.SIGINT)
    else:  # as a terminal does
        os.killpg(running.pid, signal.SIGINT)
    said, errors = running.communicate(timeout=240)
    assert running.returncode == 130 and errors.startswith("interrupted after ")
    assert "== sleep 600" in said and "== after" not in said


def test_rows_of_parts_run_at_the_same_time(tmp_path: Path) -> None:
    """Each waits for what the other one makes; a failure is named, and its row goes on."""
    script = RUNNER + (
        "folder = sys.argv[1]\n"
        "made = 'touch {0}/{1}; for n in $(seq 200); do [ -e {0}/{2} ] && exit {3}; sleep 0.1; done; exit 9'\n"
        "def part(*words):\n"
        "    return lambda outcome, marks: runner.call(outcome, 'sh', '-c', made.format(folder, *words))\n"
        "runner.PARTS = {'one': part('one', 'two', 0), 'two': part('two', 'one', 3),\n"
        "    'after': lambda outcome, marks: runner.call(outcome, 'echo', 'on')}\n"
        "runner.CONTENTS = dict.fromkeys(runner.PARTS, 'a part')\n"
        "runner.ROWS = (('one',), ('two', 'after'))\n"
        "sys.exit(runner.main([]))\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", script, tmp_path], cwd=ROOT, capture_output=True, text=True, timeout=240
    )
    assert done.returncode == 1, done.stderr
    assert "on" in done.stdout.splitlines()
    assert "FAILED" in next(line for line in done.stdout.splitlines() if line.startswith("two "))
    assert done.stdout.count("ended with 3") == 1, done.stdout


def test_a_build_says_how_long_it_will_still_take() -> None:
    script = (
        "from tools import progress\n"
        "print(progress.left(5, 100, 0, 9))\n"  # too early
        "print(progress.left(57, 100, 0, 60))\n"
        "print(progress.left(95, 100, 0, 49))\n"
        "print(progress.left(100, 100, 0, 100))\n"
        "print(progress.left(99, 100, 95, 17))\n"  # the others were there before
    )
    done = subprocess.run([sys.executable, "-c", script], cwd=ROOT, capture_output=True, text=True, check=True)
    assert done.stdout.splitlines() == ["", ", about 4 min left", ", about 51 s left", "", ", about 34 s left"]


def test_every_module_that_make_runs_exists() -> None:
    """Conditional words, too: `$(if $(STF),one.module '$(STF)',another.module ...)`."""
    text = (ROOT / "Makefile").read_text()
    named = re.findall(r" -m (?:\$\(if [^,]*,)?([\w.]+)", text)
    named += re.findall(r" -m \$\(if [^,]*,[^,]*,([\w.]+)", text)
    assert len(named) > 15
    assert [name for name in named if not importlib.util.find_spec(name)] == []
    assert {name.partition(".")[0] for name in named} <= {"accesspoint", "tools", "mkdocs"}
