# SPDX-License-Identifier: Apache-2.0
"""Link profiles and what may be given in their place."""

import pytest

from accesspoint.topologies.links.profiles import PROFILES, ProfileError, link_profile, parse_rate, parse_time


@pytest.mark.parametrize(
    ("text", "bits"), [("8mbit", 8_000_000), ("600kbit", 600_000), ("1.5Mbit", 1_500_000), ("1gbit", 10**9)]
)
def test_rates(text: str, bits: int) -> None:
    assert parse_rate(text) == bits


@pytest.mark.parametrize(("text", "seconds"), [("20ms", 0.02), ("500us", 0.0005), ("1s", 1.0), ("0ms", 0.0)])
def test_times(text: str, seconds: float) -> None:
    assert parse_time(text) == pytest.approx(seconds)


@pytest.mark.parametrize("text", ["", "fast", "8", "8m", "-1mbit", "8mbit/s", "1e6bit", "0mbit", "1bit", "99gbit"])
def test_wrong_rates_are_named(text: str) -> None:
    with pytest.raises(ProfileError, match=f"rate '{text}'"):
        parse_rate(text)


@pytest.mark.parametrize("text", ["", "20", "20m", "-1ms", "11s"])
def test_wrong_times_are_named(text: str) -> None:
    with pytest.raises(ProfileError, match=f"time '{text}'"):
        parse_time(text)


def test_an_unknown_profile_names_the_known_ones() -> None:
    with pytest.raises(ProfileError, match=r"'dsl' is unknown.*testbed.*wlan.*wimax.*lte"):
        link_profile("dsl")


def test_given_values_take_the_place_of_the_profiles_own() -> None:
    profile = link_profile("wimax", up="600kbit", rtt="20ms")
    assert (profile.down, profile.up, profile.rtt) == (4_500_000, 600_000, 0.02)
    assert profile.name == "wimax-custom", "figures of the named profile do not belong to it any more"


def test_repeating_the_profiles_own_values_changes_nothing() -> None:
    assert link_profile("testbed", down="14mbit", up="1000kbit", rtt="4ms") == PROFILES["testbed"]
