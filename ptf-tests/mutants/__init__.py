# SPDX-License-Identifier: Apache-2.0
"""Would the packet tests notice? The program with a small mistake in it, many times, and what finds each."""

import os

os.environ.setdefault("PTF_PATIENCE", "2")  # most mutants are found by what does not happen
