# SPDX-License-Identifier: Apache-2.0
"""Commands of Mininet's prompt without a prompt, and their status."""

from collections.abc import Sequence
from subprocess import call
from typing import Any

from mininet import cli
from mininet.log import output

UNKNOWN = 127
"""Status of a command that there is not, as a shell has it."""


class Commands(cli.CLI):
    """Runs commands one after the other, all of them. `status`: that of the first that failed, or 0."""

    readlineInited = True  # no history is read or written

    def __init__(self, net: Any, commands: Sequence[str]) -> None:
        self.status = 0
        self._commands = commands
        super().__init__(net)

    def run(self) -> None:
        for command in self._commands:
            if self.onecmd(command):
                return

    def default(self, line: str) -> None:
        super().default(line)
        name, words, _ = self.parseline(line)
        known = name in self.mn and words
        self._note(int(self.mn[name].cmd("echo $?")) if known else UNKNOWN)

    def do_sh(self, line: str) -> None:
        self._note(call(line, shell=True))

    def do_py(self, line: str) -> None:
        try:
            result = eval(line, vars(cli), self.getLocals())
        except Exception as error:
            output(f"{error}\n")
            self._note(1)
            return
        if result:
            output(f"{result if isinstance(result, str) else repr(result)}\n")

    def do_pingall(self, line: str) -> None:
        self._note(int(self.mn.pingAll(line) > 0))

    def _note(self, status: int) -> None:
        self.status = self.status or status
