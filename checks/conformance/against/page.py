# SPDX-License-Identifier: Apache-2.0
"""The comparison as a page."""

import collections
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from accesspoint.checks.conformance.against.run import Verdict

HEADER = """# {one} and {other}, packet by packet

`make conformance TARGET={target} AGAINST={against}` gives both the same programs, entries and generated packets over
P4Runtime, and compares byte for byte what leaves through every port and to the controller, then every counter. Entries
are made from keys that the packets have, so that they are hit. {versions}

| program | packets | frames that left | entries | counter cells | differ | with a reason | without |
| --- | ---: | ---: | ---: | ---: | ---: | ---: | ---: |
"""
NOT_COMPARED = """
## Not compared

apswitch and BMv2 are known to differ in this, and the packets keep away from it; every difference, with the why, is on
[v1model on the switch](../switch/v1model.md).

- Meters that are configured, times and queue depths: each has a clock of its own.
- Crashes of BMv2: a failed `assert`, an index beyond a stack; built with `-DNDEBUG`, one beyond an array.
- Undefined behaviour: which of two entries with one priority hits, and what fields of invalid headers hold.
- Digests: BMv2 sends the last one of a packet. VLAN tags: the kernel takes them from what the test's sockets receive.
- Frames of less than 14 bytes, which no interface carries.
"""


def page(verdicts: Mapping[str, "Verdict"], titles: Sequence[tuple[str, str, str]], compiler: str) -> str:
    """Return the page. titles: name, title and version of the target and of the other."""
    (target, one, first), (against, other, second) = titles
    versions = f"{one} {first}, {other} {second}{f', programs by p4c {compiler}' if compiler else ''}."
    text = HEADER.format(one=one, other=other, target=target, against=against, versions=versions)
    for name, v in verdicts.items():
        known = sum(map(bool, v.differing.values()))
        cells = (v.packets, v.left, v.entries, v.cells, len(v.differing), known, len(v.differing) - known)
        text += f"| {name} | {' | '.join(f'{cell:,}' for cell in cells)} |\n"
    reasons = collections.Counter(reason for v in verdicts.values() for reason in v.differing.values() if reason)
    if reasons:
        text += "\n| reason | packets |\n| --- | ---: |\n"
        text += "".join(f"| {reason} | {count:,} |\n" for reason, count in reasons.most_common())
    others = [line for v in verdicts.values() for line in v.other]
    if others:
        text += "\nIn addition to the packets:\n\n" + "".join(f"- {line}\n" for line in others[:20])
    return text + NOT_COMPARED
