# SPDX-License-Identifier: Apache-2.0
"""Experiments: what papers asked, asked again in labs, and what comes of it.

Modules stand in layers, and import from their own and those above (tests/test_imports.py):

samples, raw, intervals: measurements, figures of one run, and of many
experiment: what is declared, arms, scenes, measures, goals, figures
probe, traffic, window, selfcheck, stage, in_ns3: a lab with a clock
scene, cells, contention, controls, datagrams, http3, looks, modem, multicast, passing, wrapped: labs, their parts
ncr, fairness, cwnd, batcp, qos, peers, connections: the experiments themselves, a folder for each paper
registry, provenance, plan: all of them by name, and what is to run
store, flent, measures, archive, again: what a run leaves behind
claims, measured, cell_answers, answers, goals: what is judged, and by what
compare, pages, overview, gains, judge, summary, recompute: words, and what all runs come to
theme, panels, figures, site: pictures and pages
worker, pool, cluster, execute, commands: many runs, each in a process of its own
phases, terminal, foreground: one run of each arm, on links that people choose
__main__: the command line
"""
