# SPDX-License-Identifier: Apache-2.0
"""Persistent state: desired state, tokens, audit log and history, in SQLite or PostgreSQL.

    database -+- store     access points, defaults, tokens, audit, idempotency keys
              +- history   samples at four resolutions
              +- backup    all of it in one file

Nothing here knows of P4Runtime, and nothing here runs in the regulating process.
"""
