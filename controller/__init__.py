# SPDX-License-Identifier: Apache-2.0
"""The control plane of the access point on P4Runtime (finsy), with a REST API.

    config -> app -+- api          REST, tokens, streams            apctl -> client -> REST
                   +- state        what is kept: SQLite, PostgreSQL
                   +- control

    control -> access_point -+- connection   P4Runtime session: arbitration, pipeline, streams, retry
                             +- ports        roles, flood group, clone session, gate
                             +- stations     source digests -> `learn`, `forward`
                             +- flows        flow digests -> `flows_ipv4`, `flows_ipv6`
                             +- classes      `classify`, class weights
                             +- acks         `ack_priority`, `queue_meter`
                             +- loop         starts and watches the ticks:

    worker_main -> worker -> ticker -+- http2       gRPC as prepared bytes
                                     +- regulator   every 10 ms: counters -> feedback -> entries
                                     +- board       what others may see of it, in shared memory

The upper half is one asyncio process, always interpreted; the lower half is one or more processes of their own, native
code where it could be `compiled`, and `messages` is what the two say to each other. `law`, `feedback`, `flow_table`,
`regulator` and `queue_estimate` are pure: time is an argument, nothing is read or written. The target is any P4Runtime
server that runs the program of `p4src/`; only what BMv2's server offers is used.
"""
