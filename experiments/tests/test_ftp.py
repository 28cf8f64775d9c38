# SPDX-License-Identifier: Apache-2.0
"""Files over FTP, and samples of what arrives."""

import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from accesspoint.checks.harness.waiting import eventually
from accesspoint.experiments.scenes import ftp
from accesspoint.experiments.scenes.ftp import INTERVAL, OFFERED, RECEIVED, SIZE, client, configuration
from accesspoint.topologies.links.paths import Paths
from accesspoint.topologies.requirements import ROOT

WATCH = [sys.executable, "-m", "accesspoint.experiments.scenes.ftp"]
MISSING = [tool for tool in ("vsftpd", "lftp") if not shutil.which(tool)]


def rate(line: str) -> float:
    when, value = line.split()
    assert float(when) > 0
    return float(value)


def test_server_serves_only_its_folder_and_port(tmp_path: Path) -> None:
    settings = dict(line.split("=", 1) for line in configuration(tmp_path, 2121).splitlines())
    assert (settings["anon_root"], settings["listen_port"]) == (str(tmp_path), "2121")


def test_client_moves_the_file_in_either_direction(tmp_path: Path) -> None:
    folder = tmp_path / "a run's"
    got, sent = (client(folder, direction, "10.0.0.1", 2121)[-1] for direction in ("down", "up"))
    assert got.endswith(f"; open -p 2121 10.0.0.1; get {OFFERED} -o '{tmp_path}/a run'\"'\"'s/{RECEIVED}'")
    assert sent.endswith(f"; open -p 2121 10.0.0.1; put '{tmp_path}/a run'\"'\"'s/{OFFERED}' -o {RECEIVED}")
    assert all("set net:max-retries 1;" in words for words in (got, sent))


def test_growth_of_a_file_is_sampled_after_its_client_is_stopped(tmp_path: Path) -> None:
    """Bytes on their way when the client stops arrive later; the file's name is gone as soon as it is open."""
    file = tmp_path / RECEIVED
    writer = ["sh", "-c", f"head -c 1000000 /dev/zero >{file}; exec sleep 600"]
    command = [*WATCH, str(file), "5", *writer]
    with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout
        rates = [rate(process.stdout.readline()) for _ in range(22)]
        process.terminate()
    assert sum(rates) * INTERVAL * 1e6 / 8 == pytest.approx(1_000_000, abs=1000)
    assert not file.exists()


def test_client_that_ends_by_itself_is_an_error_with_its_reason(tmp_path: Path) -> None:
    command = [*WATCH, str(tmp_path / RECEIVED), "60", "sh", "-c", "echo refused >&2; exit 1"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=240, check=False)
    assert done.returncode == 1 and done.stderr == "the client ended before its time: refused\n"


@pytest.mark.skipif(os.geteuid() != 0, reason="network namespaces need root")
@pytest.mark.skipif(bool(MISSING), reason=f"missing: apt install {' '.join(MISSING)}")
@pytest.mark.realtime
@pytest.mark.parametrize("direction", ["down", "up"])
def test_file_fills_a_link(direction: str, tmp_path: Path) -> None:
    with (tmp_path / OFFERED).open("wb") as offered:
        offered.truncate(SIZE)
    settings = tmp_path / "vsftpd.conf"
    settings.write_text(configuration(tmp_path, ftp.PORTS["down"]))
    with Paths() as paths:
        station, server = paths.host("station"), paths.host("server")
        link = paths.link(station, server, rate="4mbit", delay="2ms", limit=50)
        server.popen("vsftpd", str(settings))
        port = str(ftp.PORTS["down"])
        eventually(lambda: port in server.run("ss", "-Htnl"))
        words = [*WATCH, str(tmp_path / RECEIVED), "60", *client(tmp_path, direction, link.b_ip, int(port))]
        watch = station.popen(*words, cwd=ROOT, stdout=subprocess.PIPE, text=True, start_new_session=True)
        assert watch.stdout
        while not rate(watch.stdout.readline()):
            pass  # it comes up
        rates = [rate(watch.stdout.readline()) for _ in range(8)]
        os.killpg(watch.pid, signal.SIGKILL)
        watch.wait()
    assert 2.0 < sum(rates) / 8 < 4 * 1448 / 1514 * 1.1
    assert not (tmp_path / RECEIVED).exists()
