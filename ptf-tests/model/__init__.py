# SPDX-License-Identifier: Apache-2.0
"""A second opinion: what the documents say happens to a frame, in plain Python, and frames and entries to ask both."""
