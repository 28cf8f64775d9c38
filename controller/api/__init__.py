# SPDX-License-Identifier: Apache-2.0
"""The service: REST, server-sent events, metrics and history, in one process with the sessions; long work is done in
threads.

__main__ -> app -+- security        who may do what; limits, headers, audit
                 +- access_points, live, history, events, admin     routes
                 +- service -+- backend   the access points: `agent.local_backend`, or `fleet.remote_backend`
                             +- state     database
"""
