# SPDX-License-Identifier: Apache-2.0
"""For all rooms. Tests send Ctrl-C to what they start. A shell's background job ignores it, and all that it starts
would, too."""

import signal

import pytest
from hypothesis import HealthCheck, settings

import accesspoint.checks  # noqa: F401 before gRPC, whose environment it sets

signal.signal(signal.SIGINT, signal.default_int_handler)
# The load of the machine decides how long it takes to make an example, and to try it.
settings.register_profile("on a busy machine", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("on a busy machine")


@pytest.fixture(scope="session")
def ns3() -> None:
    """Skips where ns-3 or a compiler is not installed, and says how to have it. What does not compile has failed."""
    from accesspoint.topologies.ns3 import build
    from accesspoint.topologies.requirements import LabError

    try:
        build.wheel()
        build.compiler()
    except LabError as error:
        pytest.skip(str(error))
    build.library()


@pytest.fixture(scope="session")
def ns2() -> None:
    """Skip where ns-2 is not installed, and say how to have it."""
    from accesspoint.topologies.ns2 import cell
    from accesspoint.topologies.requirements import LabError

    try:
        cell.version()
    except LabError as error:
        pytest.skip(str(error))


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark the tests in ns-3 as long, as its wheel has 300 MB, and those that need root as labs."""
    for item in items:
        fixtures = getattr(item, "fixturenames", ())
        if "ns3" in fixtures:
            item.add_marker(pytest.mark.long)
        if "root" in fixtures or any("root" in mark.kwargs.get("reason", "") for mark in item.iter_markers("skipif")):
            item.add_marker(pytest.mark.lab)
