# SPDX-License-Identifier: Apache-2.0
"""The checks, a file for each part of the specification."""
