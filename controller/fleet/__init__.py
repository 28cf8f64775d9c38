# SPDX-License-Identifier: Apache-2.0
"""Messages over NATS between agents on machines of their own and any number of replicas of the service.

agent  -- engine --  NATS JetStream  -- engine --  replica (`remote_backend` in the place of `agent.local_backend`)

remote_backend   the access points of agents that run elsewhere, with the interface of `agent.local_backend`
credentials      keys, tokens of NATS, certificates, and the server's configuration
engine           one connection: values with revisions, messages, requests with an answer
messages         the messages' models, checked on receipt
adoption         agents that announce themselves
archive          history out of the engine into the database, each sample once
"""
