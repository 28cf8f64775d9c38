# SPDX-License-Identifier: Apache-2.0
"""`apswitch` as a Mininet switch for any P4 program, in scripts as users write them."""

import re
from pathlib import Path

import pytest

from accesspoint.topologies.requirements import ROOT
from accesspoint.topologies.tests.conftest import Start
from accesspoint.topologies.tests.mininet_scripts import played, round_trips, script

pytestmark = pytest.mark.usefixtures("privileged")


def test_p4_switch_with_plain_links_passes_tcp(start: Start) -> None:
    output = played(
        start,
        """
        s1 = switch()
        hosts({}, {}, to=s1)
        net.start()
        ping()
        serve()
        print(net["h1"].cmd("iperf3 -c 10.0.0.2 -n 20M -f k"))
        """,
    )
    assert "2 received" in output
    received = re.search(r"([\d.]+) MBytes .* receiver", output)
    assert received and float(received[1]) > 10, output  # the last of it waits in a buffer


@pytest.mark.realtime
def test_p4_switch_with_plain_links_is_fast(start: Start) -> None:
    output = played(
        start,
        """
        hosts({}, {}, to=switch())
        net.start()
        serve()
        print(net["h1"].cmd("iperf3 -c 10.0.0.2 -t 1 -f k"))
        """,
    )
    received = re.search(r"([\d.]+) Kbits/sec +receiver", output)
    assert received and float(received[1]) > 10_000, output


@pytest.mark.parametrize("link", ["Link", "AccessPointLink", "TCLink"])
def test_p4_switch_link_with_mininets_words_has_them_as_its_ports_model(start: Start, link: str) -> None:
    words = "bw=3, max_queue_size=20" if link == "TCLink" else "bw=3, delay='30ms', jitter='5ms', max_queue_size=20"
    output = played(
        start,
        f"""
from mininet.link import Link
s1 = switch()
hosts(dict(cls={link}, {words}), dict(), to=s1)
net.start()
ping()
print(s1.wiring().links)
print(subprocess.run(["tc", "qdisc", "show", "dev", s1.wired[1].name], capture_output=True, text=True).stdout)
""",
    )
    model = "rate=3000000bit,limit=20"
    if link == "TCLink":  # this kernel may have no netem, which Mininet uses at the host's end
        assert f"{{1: '{model}'}}" in output
    else:
        assert f"{{1: '{model},delay=25000us,jitter=10000us'}}" in output
        assert round_trips(output)[0] >= 25, output
    assert "qdisc noqueue 0: root" in output, "a queue of the kernel stands where the switch has its own"
    assert "2 received" in output


def test_p4_switch_port_with_a_queue_discipline_has_its_rate(start: Start) -> None:
    output = played(
        start,
        """
        s1 = switch()
        hosts({}, {}, to=s1)
        subprocess.run("tc qdisc add dev s1-eth2 root tbf rate 500kbit burst 5000 limit 30000", shell=True, check=True)
        net.start()
        ping()
        eventually(lambda: "queue discipline" in s1.log.read_text())
        print(s1.log.read_text())
        serve()
        print(net["h1"].cmd("iperf3 -c 10.0.0.2 -t 2 -f k"))
        """,
    )
    assert "port 2 (s1-eth2): link model of its queue discipline, tbf: rate=500000bit,burst=5000," in output
    received = re.search(r"([\d.]+) Kbits/sec +receiver", output)
    assert received and float(received[1]) < 500, output


@pytest.mark.parametrize(
    ("body", "message"),
    [
        ("switch(jsn='x')", "s1: 'jsn' is unknown of P4Switch: choose of json, p4info, switch_config, "),
        ("net.addSwitch('ap1', cls=AccessPoint, profil='lte')", "ap1: 'profil' is unknown of AccessPoint: choose of "),
        ("hosts(dict(bandwidth=3), dict(), to=switch()); net.start()", "s1: port 1: 'bandwidth' is unknown of a link"),
        ("hosts(dict(cls=AccessPointLink, speed=3), to=switch())", "'speed' is unknown of a link to a switch: choose"),
        ("switch(json='/nowhere.json')", "s1: json=/nowhere.json is no file: compile the program with p4c-bm2-ss"),
        ("switch(); switch('s2', grpc_port=9559)", "s2: grpc_port: TCP port 9559 is taken: give another one"),
        (
            "for n in (1, 2): net.addSwitch(f'ap{n}', cls=AccessPoint, rest_port=8080)",
            "ap2: rest_port: TCP port 8080 is taken: give another one",
        ),
        ("net.addSwitch('s1', cls=P4Switch, trace=True)", "s1: p4info=, switch_config= and trace= need the program: "),
        ("switch(log_level='loud'); net.start()", "s1: the switch did not start: "),
    ],
)
def test_p4_switch_bad_input_gets_one_line(start: Start, body: str, message: str) -> None:
    output = played(start, body)
    assert f"LabError: {message}" in output
    (line,) = [line for line in output.splitlines() if line.startswith("LabError: ")]
    assert "Traceback" not in output and len(line) < 300


def test_p4_switch_trace_has_each_packet_as_a_line_of_json(start: Start) -> None:
    output = played(
        start,
        """
import json
s1 = switch(trace=True)
hosts({}, {}, to=s1)
net.start()
ping()
ports = set()
for _ in range(1000):
    time.sleep(0.1)
    whole = s1.trace.read_text().rpartition("\\n")[0].splitlines()
    ports |= {event["port"] for line in whole for event in json.loads(line)["events"] if event["event"] == "received"}
    if len(ports) == 2:
        break
print("traced", sorted(ports), s1.trace.name)
""",
    )
    assert "traced [1, 2] s1.trace.json" in output, output


def test_p4_switch_link_attached_and_detached_while_it_runs(start: Start) -> None:
    output = played(
        start,
        """
s1 = switch()
hosts({}, to=s1)
h2 = net.addHost("h2")
net.start()
link = net.addLink(h2, s1, bw=5, delay="20ms")
h2.setIP("10.0.0.2/8")
s1.attach(link.intf2)
ping()
ping_until(60)
eventually(lambda: "port 2 s1-eth2 UP" in s1.dpctl("show"))
print(s1.dpctl("show"))
s1.detach(link.intf2)
ping(wait=3)
s1.stop(deleteIntfs=False)
s1.start([])
print("ports after restart", sorted(s1.wired))
s1.attach(link.intf2)
ping()
""",
    )
    answered = re.findall(r"2 packets transmitted, (\d) received", output)
    assert answered == ["2", "0", "2"], output
    assert 20 <= min(round_trips(output.partition("ports after restart")[0])) < 60
    assert re.search(r"^port 2 s1-eth2 UP in-pkts [1-9]", output, re.M)
    assert "ports after restart [1]" in output


def test_p4_switch_in_a_namespace_passes_packets(start: Start) -> None:
    output = played(
        start,
        """
s1 = switch(inNamespace=True)
hosts({}, dict(delay="20ms"), to=s1)
net.start()
ping()
print("outside:", "s1-eth1" in subprocess.run(["ip", "link"], capture_output=True, text=True).stdout)
eventually(lambda: "port 1 s1-eth1 UP" in s1.dpctl("show"))  # the switch hears of the carrier later than packets pass
print(s1.dpctl("show"))
""",
    )
    assert "2 received" in output and "outside: False" in output and "port 1 s1-eth1 UP" in output


def test_p4_switch_that_died_is_reported_with_its_log(start: Start) -> None:
    output = played(
        start,
        """
s1 = switch()
hosts({}, {}, to=s1)
net.start()
eventually(lambda: "P4Runtime on" in s1.log.read_text())  # it writes its log aside
s1.process.kill()
import threading
eventually(lambda: threading.active_count() == 1)  # who watches it has told it
print("dpctl:", s1.dpctl("show"))
""",
    )
    assert "s1: the switch ended with code -9; its log ends:\n" in output
    assert "P4Runtime on 127.0.0.1:9559" in output
    assert "Traceback" not in output


def test_p4_switch_that_is_stopped_reports_nothing(start: Start) -> None:
    assert "ended" not in played(start, "hosts({}, {}, to=switch())\nnet.start()")


def test_p4_switch_that_is_stopped_leaves_its_port_to_the_next(start: Start) -> None:
    output = played(
        start,
        """
for name in ("s1", "s2"):
    s = switch(name, grpc_port=50051)
    s.start([])
    print(s.name, s.grpc)
    s.stop()
""",
    )
    assert "s1 127.0.0.1:50051\ns2 127.0.0.1:50051\n" in output


def test_p4_switch_writes_what_its_ports_carry(start: Start, tmp_path: Path) -> None:
    played(start, f"hosts({{}}, {{}}, to=switch(pcap={str(tmp_path / 'pcap')!r}))\nnet.start()\nping()")
    files = {path.name: path.stat().st_size for path in (tmp_path / "pcap").iterdir()}
    assert files.keys() == {f"s1-eth{port}_{way}.pcap" for port in (1, 2) for way in ("in", "out")}
    assert all(size > 24 for size in files.values())


def test_p4_switch_with_p4info_takes_entries_at_once(start: Start) -> None:
    programs = ROOT / "switch/testdata/programs"
    output = played(
        start,
        f"""
s1 = switch(json="{programs}/profiles.json", p4info="{programs}/profiles.p4info.txtpb")
hosts({{}}, {{}}, to=s1)
net.start()
import asyncio, finsy
async def tables():
    async with finsy.Switch("s1", s1.grpc, finsy.SwitchOptions(initial_election_id=1)) as client:
        print("tables", len(client.p4info.tables))
asyncio.run(tables())
""",
    )
    tables = re.search(r"^tables (\d+)$", output, re.M)
    assert tables and int(tables[1]) > 0, output


def test_p4_switch_of_a_killed_script_leaves_no_folder_to_the_next(start: Start, tmp_path: Path) -> None:
    body = "hosts({}, {}, to=switch())\nnet.start()\nprint(net['s1'].directory, flush=True)\ntime.sleep(60)"
    process = start("-c", script(body), TMPDIR=str(tmp_path))
    assert process.stdout
    folder = Path(next(line for line in process.stdout if line.startswith(str(tmp_path))).strip())
    process.kill()
    process.communicate(timeout=120)
    assert folder.is_dir()
    (tmp_path / "s1-others").mkdir()  # nobody's of this project
    played(start, "hosts({}, {}, to=switch())\nnet.start()", TMPDIR=str(tmp_path))
    assert [path.name for path in tmp_path.iterdir()] == ["s1-others"]


def test_bridge_run_twice_starts_twice(start: Start) -> None:
    output = played(
        start,
        """
subprocess.run("ip link add s3 type bridge", shell=True, check=True)  # left by a killed script
s3 = net.addSwitch("s3", cls=Bridge)
hosts({}, {}, to=s3)
net.start()
ping()
print(s3.dpctl("show"))
s3.stop(deleteIntfs=False)
print("bridges", subprocess.run("ip -br link show type bridge", shell=True, capture_output=True).stdout)
""",
    )
    assert "2 received" in output and "s3-eth1" in output and "bridges b''" in output
