# SPDX-License-Identifier: Apache-2.0
"""Experiments: the papers' questions, asked again in labs, and what the runs come to.

A folder is a layer. Its modules import from their own layer and those above (tests/test_imports.py):

measure: samples, figures of one run, and of many
experiment: the declaration of an experiment, with arms, scenes, measures, goals and figures
lab: a lab with a clock
scenes: labs, and their parts
catalogue: the experiments themselves, a folder for each paper or question
runs: experiments by name, plans of runs, and what a run leaves behind
verdict: claims and goals, the evidence, and the words of pages
render: pictures, reports and the site
execution: runs, each in a process of its own
__main__: the command line
"""
