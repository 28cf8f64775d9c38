#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""`stratum_bmv2`, Stratum's server of a BMv2, by the switch that is called `simple_switch_grpc`.

Takes the options that finsy's networks give, and starts the switch with BMv2's; its ports are in the chassis file. As
Stratum's have no Thrift, that of a BMv2 gets a port of its own: several run in a network."""

import os
import re
import sys
from pathlib import Path

THRIFT = 9100  # and the last digits of the P4Runtime port


def main() -> None:
    given = dict(word.lstrip("-").split("=", 1) for word in sys.argv[1:])
    chassis = Path(given["chassis_config_file"]).read_text()
    ports = re.findall(r'singleton_ports \{\s*id: (\d+)\s*name: "([^"]+)"', chassis)
    words = ["--no-p4", "--log-console", "--log-level", given["bmv2_log_level"], "--device-id", given["device_id"]]
    words += [word for number, name in ports for word in ("-i", f"{number}@{name}")]
    words += ["--thrift-port", str(THRIFT + int(given["external_stratum_urls"].rpartition(":")[2]) % 1000)]
    words += ["--", "--cpu-port", given["cpu_port"], "--grpc-server-addr", given["external_stratum_urls"]]
    if "server_cert_file" in given:
        words += ["--grpc-server-ssl", "--grpc-server-with-client-auth"]
        for option, file in (("cacert", "ca_cert_file"), ("cert", "server_cert_file"), ("key", "server_key_file")):
            words += [f"--grpc-server-{option}", given[file]]
    os.execvp("simple_switch_grpc", ["simple_switch_grpc", *words])


main()
