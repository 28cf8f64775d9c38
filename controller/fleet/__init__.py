# SPDX-License-Identifier: Apache-2.0
"""Agents on machines of their own, and any number of replicas of the service: what passes between them, over NATS.

agent  -- engine --  NATS JetStream  -- engine --  replica (`fleet` in the place of `agent.control`)

credentials   who may say what: keys, tokens of NATS, certificates, and the server's configuration
engine        one connection: values with revisions, messages, questions with an answer
messages      what is said, checked whenever it comes in
fleet         what the service asks of access points whose agents are elsewhere
adoption      agents that announce themselves
archive       history out of the engine into the database, each sample once
"""
