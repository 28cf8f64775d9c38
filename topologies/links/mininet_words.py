# SPDX-License-Identifier: Apache-2.0
"""Mininet's words for a link (`bw`, `delay`, ...) as the link model of a switch's port."""

from collections.abc import Mapping
from typing import Any

from accesspoint.topologies.links.profiles import ProfileError, parse_rate, parse_time
from accesspoint.topologies.requirements import LabError

WORDS = ("bw", "delay", "jitter", "loss", "max_queue_size")
# Words of Mininet's links and interfaces; of the queue discipline that keeps a rate, which is exact here; of offloads,
# which are always off at a switch.
_OTHER_WORDS = {"mac", "ip", "ifconfig", "up", "params1", "params2", "port1", "port2", "addr1", "addr2", "intf", "fast"}
_OTHER_WORDS |= {"cls1", "cls2", "intfName1", "intfName2", "moveIntfFn", "use_htb", "use_hfsc", "use_tbf"}
_OTHER_WORDS |= {"gro", "disable_gro", "txo", "rxo"}


def link_model(words: Mapping[str, Any]) -> dict[str, object]:
    """Return the model of `apswitch --link`, empty where the words name none.

    bw: Mbit/s. delay, jitter: times with a unit; a packet takes from delay - jitter to delay + jitter. loss: per cent.
    max_queue_size: packets. Raises LabError for an unknown word and an impossible value.
    """
    if unknown := [word for word in words if word not in (*WORDS, *_OTHER_WORDS)]:
        raise LabError(f"'{unknown[0]}' is unknown of a link to a switch: choose of {', '.join(WORDS)}")
    given = {word: words[word] for word in WORDS if words.get(word) is not None}
    model: dict[str, object] = {}
    try:
        if "bw" in given:
            megabits = _number(given, "bw")
            model["rate"] = f"{parse_rate(f'{megabits:f}mbit')}bit"
        if "max_queue_size" in given:
            model["limit"] = limit = int(_number(given, "max_queue_size"))
            if limit < 1:
                raise LabError(f"max_queue_size={limit} is not possible: give 1 packet at least")
        delay, jitter = (_microseconds(given, word) for word in ("delay", "jitter"))
    except ProfileError as error:
        raise LabError(f"link: {error}") from None
    if jitter > delay:
        raise LabError(f"jitter={given['jitter']} is more than the delay: give a delay of at least that")
    if "delay" in given:
        model["delay"] = f"{delay - jitter}us"
    if jitter:
        model["jitter"] = f"{2 * jitter}us"
    if "loss" in given:
        loss = _number(given, "loss")
        if not 0 <= loss <= 100:
            raise LabError(f"loss={loss:g} is not possible: give a percentage from 0 to 100")
        model["loss"] = f"{loss / 100:.9g}"
    return model


def _number(words: Mapping[str, Any], word: str) -> float:
    try:
        return float(words[word])
    except (TypeError, ValueError):
        raise LabError(f"{word}={words[word]!r} is no number") from None


def _microseconds(words: Mapping[str, Any], word: str) -> int:
    text = str(words.get(word, 0))
    return 0 if text == "0" else round(parse_time(text) * 1e6)
