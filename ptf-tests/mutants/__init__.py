# SPDX-License-Identifier: Apache-2.0
"""Would the packet tests notice? The program with a small mistake in it, many times, and what finds each."""
