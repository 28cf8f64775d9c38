# SPDX-License-Identifier: Apache-2.0
"""The protos that the switch is built from are those that controller and tests speak: `RENEW=1 pytest` copies them."""

import os
import shutil
from pathlib import Path

import finsy
import pytest

PROTOS = Path(__file__).resolve().parents[1] / "protos"
SPOKEN = Path(finsy.__file__).parent / "proto"


@pytest.mark.parametrize("proto", sorted(PROTOS.rglob("*.proto")), ids=lambda proto: proto.stem)
def test_protos_are_those_of_finsy(proto: Path) -> None:
    spoken = SPOKEN / proto.relative_to(PROTOS)
    if os.environ.get("RENEW"):
        shutil.copy(spoken, proto)
    assert proto.read_bytes() == spoken.read_bytes(), "copy them anew with RENEW=1"
