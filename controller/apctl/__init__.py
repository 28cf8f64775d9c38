# SPDX-License-Identifier: Apache-2.0
"""`apctl`: the controller from the command line, through the same API and typed client that anyone may use."""
