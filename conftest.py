# SPDX-License-Identifier: Apache-2.0
"""Tests send Ctrl-C to what they start. A shell's background job ignores it, and all that it starts would, too."""

import signal

signal.signal(signal.SIGINT, signal.default_int_handler)
