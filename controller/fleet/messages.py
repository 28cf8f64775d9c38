# SPDX-License-Identifier: Apache-2.0
"""Messages between agents and replicas, as JSON.

A message is checked completely before it is used: it may be of another release, or from somebody without the right to
write it.
"""

import json
from typing import Annotated, Any, Literal, TypeVar

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from ..config import AccessPointConfig, MacAddress, Name
from ..mistakes import one_line
from ..observation import Observation
from ..samples import MEANS, RETENTION, STATION_RETENTION, STATION_SUMS, SUMS, Bucket, Key

VERSION: Literal[1] = 1
"""Version of the messages; another one is of another release."""
MAX_MESSAGE_BYTES = 1_000_000
"""Bytes of one message that the engine accepts."""
MAX_ROWS = 1000
"""Samples in one message."""

Count = Annotated[int, Field(ge=0, lt=2**63)]
Text = Annotated[str, Field(max_length=64)]


class Unusable(Exception):
    """A message that cannot be understood; the text is one line, without who sent it."""


class Message(BaseModel):
    """A message; its version identifies the release."""

    model_config = ConfigDict(extra="forbid")

    version: Literal[1] = VERSION


class Desired(Message):
    """Desired configuration of an access point, as of a revision; None: it was removed."""

    revision: Count
    config: dict[str, Any] | None


class Lease(Message):
    """The primary agent; the revision of this value is the lease's epoch."""

    agent: Text


class Seen(Message):
    """Observation by an agent, once a second."""

    agent: Text
    revision: Count
    """Revision in effect: the last one that was in the switch completely; 0: none since the start."""
    lost: Count
    """Samples of history that it could not keep any longer."""
    problem: str | None
    """Reason why the desired revision is not in effect."""
    observation: Observation


class Samples(Message):
    """Samples of an access point. `rows`, of its ports: resolution, port, time, number, longest delay, means, sums;
    `used`, of its stations: resolution, address, time, sums."""

    rows: Annotated[
        list[tuple[Literal[tuple(RETENTION)], Count, Count, Count, Count, list[float], list[Count]]],  # type: ignore[valid-type]
        Field(max_length=MAX_ROWS),
    ]
    used: Annotated[
        list[tuple[Literal[tuple(STATION_RETENTION)], MacAddress, Count, list[Count]]],  # type: ignore[valid-type]
        Field(max_length=MAX_ROWS),
    ] = []

    @classmethod
    def of(cls, done: dict[Key, Bucket]) -> "Samples":
        """Make a message of a recorder's samples."""
        rows = [
            (key[0], key[2], key[3], bucket.samples, bucket.delay_max_us, bucket.means, bucket.sums)
            for key, bucket in done.items()
            if isinstance(key[2], int)
        ]
        used = [(key[0], key[2], key[3], bucket.sums) for key, bucket in done.items() if isinstance(key[2], str)]
        return cls.model_construct(version=VERSION, rows=rows, used=used)

    def buckets(self, name: str) -> dict[Key, Bucket]:
        """Return the samples to be written; raises `Unusable`."""
        done: dict[Key, Bucket] = {}
        for resolution, port, time, number, longest, means, sums in self.rows:
            if len(means) != len(MEANS) or len(sums) != len(SUMS) or not number or port > 511 or time >= 2**31:
                raise Unusable("a sample is not what samples are")
            done[resolution, name, port, time] = Bucket(number, longest, means, sums)
        for resolution, address, time, sums in self.used:
            if len(sums) != len(STATION_SUMS) or time >= 2**31:
                raise Unusable("what a station used is not what samples are")
            done[resolution, name, address, time] = Bucket(1, 0, [], sums)
        return done


class Order(Message):
    """A request to an agent."""

    do: Literal["flows", "stations", "flow", "usage", "change_flow", "counters"]
    arguments: dict[str, Any]


class Answer(Message):
    """Result of an order; with a `status` it was refused."""

    answer: Any = None
    status: int | None = None
    detail: str = ""


class Announcement(Message):
    """An agent that would like to be adopted, or to have its token renewed."""

    id: Text
    """Its public key."""
    name: Name
    host: Text
    config: AccessPointConfig | None = None
    """Configuration that it asks for, unless the service has another one."""


class Adopted(Message):
    """Answer to an announcement: the token with which the agent may work."""

    name: Name
    jwt: Annotated[str, Field(max_length=8192)]


M = TypeVar("M", bound=Message)


def parse(kind: type[M], data: bytes) -> M:
    """Parse and check a message; raises `Unusable`."""
    try:
        return kind.model_validate_json(data)
    except ValidationError as error:
        try:
            given = json.loads(data)
            version = given.get("version") if isinstance(given, dict) else None
        except ValueError:
            version = None
        if isinstance(version, int) and version != VERSION:
            raise Unusable(
                f"it speaks version {version}, and this release version {VERSION}: use the same release on both"
            ) from None
        raise Unusable(one_line(error)) from None


def text(message: Message) -> bytes:
    """Return a message as it is sent."""
    return message.model_dump_json(exclude_unset=False).encode()
