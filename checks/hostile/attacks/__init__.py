# SPDX-License-Identifier: Apache-2.0
"""The attacks: functions with `@attack(SERVER)` that take a `Target`. A module is found by being here."""
