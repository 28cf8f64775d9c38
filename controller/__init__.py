# SPDX-License-Identifier: Apache-2.0
"""The control plane of the access point on P4Runtime (finsy), with a REST API.

    config -> app -+- api                    REST, tokens, streams         apctl -> client -> REST
                   +- state                  SQLite, PostgreSQL
                   +- agent.local_backend    the access points, in this process
                   +- fleet.remote_backend   in its place: agents in processes of their own, over NATS

    agent.local_backend -> access_point -+- connection     P4Runtime session: arbitration, pipeline, streams, retry
                                         +- ports          roles, flood group, clone session, gate
                                         +- stations       source digests -> `learn`, `forward`
                                         +- flows          flow digests -> `flows_ipv4`, `flows_ipv6`
                                         +- classes        `classify`, class weights
                                         +- queue_meters   `ack_priority`, `queue_meter`
                                         +- loop           every 10 ms: counters -> feedback -> entries; `regulator`
                                         +- transport      requests and answers as bytes, over gRPC or not

One asyncio process, and each access point is some coroutines of it: the session, what it learns, its loop. They share
nothing with another access point's, and what breaks one of them ends its session alone (`connection`). `law`,
`feedback`, `flow_table`, `regulator` and `queue_estimate` are pure: time is an argument, nothing is read or written;
all others take their time from the event loop, so a controller in virtual time needs another event loop and a
transport, and nothing else.

The target is any P4Runtime server that runs the program of `p4src/`; only what BMv2's server offers is used.
"""
