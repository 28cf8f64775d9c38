#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""`stratum_bmv2`, Stratum's server of a BMv2, by the switch that is called `simple_switch_grpc`.

Takes the options that finsy's networks give, and starts the switch with BMv2's; its ports are in the chassis file."""

import os
import re
import sys
from pathlib import Path


def main() -> None:
    given = dict(word.lstrip("-").split("=", 1) for word in sys.argv[1:])
    chassis = Path(given["chassis_config_file"]).read_text()
    ports = re.findall(r'singleton_ports \{\s*id: (\d+)\s*name: "([^"]+)"', chassis)
    words = ["--no-p4", "--log-console", "--log-level", given["bmv2_log_level"], "--device-id", given["device_id"]]
    words += [word for number, name in ports for word in ("-i", f"{number}@{name}")]
    words += ["--", "--cpu-port", given["cpu_port"], "--grpc-server-addr", given["external_stratum_urls"]]
    if "server_cert_file" in given:
        words += ["--grpc-server-ssl", "--grpc-server-with-client-auth"]
        for option, file in (("cacert", "ca_cert_file"), ("cert", "server_cert_file"), ("key", "server_key_file")):
            words += [f"--grpc-server-{option}", given[file]]
    os.execvp("simple_switch_grpc", ["simple_switch_grpc", *words])


main()
