# SPDX-License-Identifier: Apache-2.0
"""`python -m accesspoint.checks.hostile.echo PORT`: sends back what comes, on loopback. What stands behind the
proxy."""

import asyncio
import sys


async def echo(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    try:
        while data := await reader.read(65536):
            writer.write(data)
            await writer.drain()
    except OSError:
        pass
    finally:
        writer.close()


async def main() -> None:
    server = await asyncio.start_server(echo, "127.0.0.1", int(sys.argv[1]), backlog=1024)
    await server.serve_forever()


if __name__ == "__main__":
    asyncio.run(main())
