# SPDX-License-Identifier: Apache-2.0
"""The output of ss on a sender is read right, and a transfer that its window does not limit is reported."""

from accesspoint.experiments.lab import selfcheck
from accesspoint.experiments.lab.window import judge, parse, problem
from accesspoint.topologies.kernels.kernel import REAL, VIRTUAL

CONTROL = """\
ESTAB 0      0      [::ffff:10.0.0.1]:5201 [::ffff:10.0.0.11]:42400
\t ts sack ecn ecnseen cubic wscale:10,10 rto:212 rtt:11.174/13.255 mss:1448 cwnd:10 bytes_sent:4 app_limited
"""
DATA = """\
ESTAB 0      322904 [::ffff:10.0.0.1]:5201 [::ffff:10.0.0.11]:42410 timer:(on,176ms,0)
\t ts sack ecn ecnseen cubic wscale:10,10 rto:288 rtt:85.473/1.23 mss:1448 cwnd:{cwnd} ssthresh:78 bytes_sent:5105648 \
bytes_retrans:8688 bytes_acked:4953608 busy:2968ms {limits} unacked:{unacked} retrans:2/6 sacked:5 lost:1 notsent:179552
"""


def text(cwnd: int = 99, unacked: int = 103, limits: str = "") -> str:
    return DATA.format(cwnd=cwnd, unacked=unacked, limits=limits) + CONTROL


def test_connections_are_read() -> None:
    data, control = parse(text(limits="rwnd_limited:12ms(0.4%) sndbuf_limited:594ms(20.0%)"))
    assert (data.sent, data.cwnd, data.in_flight, data.unsent) == (5105648, 99, 103 - 5 - 1 + 2, 179552)
    assert (data.receive_limited, data.buffer_limited) == (0.004, 0.2)
    assert data.cwnd_limited and not control.cwnd_limited


def test_a_full_window_is_fit_and_the_control_connection_is_left_out() -> None:
    judged = judge([text()] * 5)
    assert judged == {"cwnd_limited": 1.0, "receive_limited": 0.0, "buffer_limited": 0.0}
    assert problem("downlink", judged) is None


def test_a_window_that_is_not_filled_is_the_radios_or_the_machines_doing() -> None:
    judged = judge([text(), text(unacked=40), text(unacked=30), text(unacked=40), text()])
    assert judged and judged["cwnd_limited"] == 0.4
    said = problem("downlink", judged)
    assert said == (
        "downlink was cwnd-limited in only 40% of samples: the radio or the machine limited it, not the link"
    )


def test_other_limits_are_told_by_name() -> None:
    limits = "rwnd_limited:2000ms(67.4%) sndbuf_limited:594ms(20.0%)"
    said = problem("uplink", judge([text(unacked=20, limits=limits)]))
    assert said == "uplink was limited by its receive window, not by its congestion window"
    limits = "sndbuf_limited:2900ms(97.7%)"
    said = problem("uplink", judge([text(unacked=20, limits=limits)]))
    assert said == "uplink was limited by its send buffer, not by its congestion window"


def test_what_a_flow_suffers_is_no_fault_of_the_machine() -> None:
    """Starved behind a FIFO: nothing came through yet, or what was sent is taken for lost and tried again, later each
    time."""
    silent = DATA.replace("bytes_sent:5105648", "bytes_sent:0").format(cwnd=10, unacked=0, limits="")
    starved = text(cwnd=10, unacked=3, limits="backoff:3")
    recovering = text(cwnd=40, unacked=12).replace("lost:1", "lost:9")
    for looks in (["", ""], [silent], [starved] * 5, [recovering] * 5):
        assert problem("download", judge(looks)) is None
    # Looks that are `telling` decide.
    judged = judge([starved, text(unacked=20), text(unacked=20), ""])
    assert judged and judged["cwnd_limited"] == 0.0
    assert problem("download", judged)


def test_a_sender_that_paces_itself_need_not_fill_its_window() -> None:
    """BBR sends at the rate that it has measured; its window is twice what that takes."""
    paced = text(cwnd=80, unacked=40).replace(" cubic ", " bbr ")
    assert problem("uplink", judge([paced] * 5)) is None


def test_in_virtual_time_only_a_radio_or_a_host_makes_a_flow_unfit() -> None:
    """A download under the paper's law once had room in its window at every look, and its run was left out."""
    assert selfcheck.held_back(REAL, radios=False) and selfcheck.held_back(REAL, radios=True)
    assert selfcheck.held_back(VIRTUAL, radios=True) and not selfcheck.held_back(VIRTUAL, radios=False)
    roomy = {"cwnd_limited": 0.0, "receive_limited": 0.0, "buffer_limited": 0.0}
    assert "the radio or the machine" in str(problem("download", roomy))
    assert problem("download", roomy, held_back=False) is None
    assert "its receive window" in str(problem("download", roomy | {"receive_limited": 0.9}, held_back=False))
