# SPDX-License-Identifier: Apache-2.0
"""Everything that a connection can try against each server of the project. `make hostile`.

__main__    the command line, and the run
attack      what an attack is: a function and a few words beside it
attacks/    the attacks, a module for each server or way in: the next one is one more function there
servers     how each server is started, and what its other client asks for meanwhile
measure     one attack against one server, and what was seen: memory, the other client's waits, packets
report      the bounds, the table, out/hostile/summary.json, the table in docs/results/hostile.md
"""
