# SPDX-License-Identifier: Apache-2.0
"""The service: REST, server-sent events, metrics and history, in a process of its own beside the loops.

__main__ -> app -+- security        who may do what; limits, headers, audit
                 +- access_points, live, history, events, admin     routes
                 +- service -+- control (pipe)   the regulating process
                             +- state            database
"""
