# SPDX-License-Identifier: Apache-2.0
"""Mininet's words for links as link models of the switch's ports."""

from typing import Any

import pytest

from accesspoint.topologies.links.mininet_words import link_model
from accesspoint.topologies.requirements import LabError


@pytest.mark.parametrize(
    ("words", "model"),
    [
        ({}, {}),
        ({"bw": None, "delay": None, "loss": None}, {}),
        ({"bw": 10}, {"rate": "10000000bit"}),
        ({"bw": 0.5, "max_queue_size": 20}, {"rate": "500000bit", "limit": 20}),
        ({"delay": "5ms", "loss": 2.5}, {"delay": "5000us", "loss": "0.025"}),
        ({"delay": "0"}, {"delay": "0us"}),
        ({"delay": "10ms", "jitter": "2ms"}, {"delay": "8000us", "jitter": "4000us"}),
        ({"bw": 10, "use_htb": True, "txo": False, "mac": "02:00:00:00:00:01"}, {"rate": "10000000bit"}),
    ],
)
def test_link_model_of_mininets_words_is_the_switchs(words: dict[str, Any], model: dict[str, object]) -> None:
    assert link_model(words) == model


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ({"bandwidth": 10}, "'bandwidth' is unknown of a link .*: choose of bw, delay, jitter, loss, max_queue_size"),
        ({"bw": 10, "enable_ecn": True}, "'enable_ecn' is unknown"),
        ({"bw": "fast"}, "bw='fast' is no number"),
        ({"bw": 0}, "rate '0.000000mbit' is out of range"),
        ({"delay": 5}, "time '5' is not a number with a unit"),
        ({"delay": "1ms", "jitter": "2ms"}, "jitter=2ms is more than the delay"),
        ({"loss": 101}, "loss=101 is not possible"),
        ({"max_queue_size": 0}, "max_queue_size=0 is not possible"),
        ({"max_queue_size": -1}, "max_queue_size=-1 is not possible"),
    ],
)
def test_link_model_of_impossible_words_is_refused(words: dict[str, Any], message: str) -> None:
    with pytest.raises(LabError, match=message):
        link_model(words)
