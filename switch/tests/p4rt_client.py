# SPDX-License-Identifier: Apache-2.0
"""The raw P4Runtime client of the conformance suite."""

from conformance.client import *  # noqa: F403
