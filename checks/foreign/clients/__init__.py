# SPDX-License-Identifier: Apache-2.0
"""Cases, a module for each client."""
