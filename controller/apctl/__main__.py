# SPDX-License-Identifier: Apache-2.0
"""`apctl`: get, watch, set, apply, create, delete.

Exit code: 0 done, 1 the controller refuses or does not answer, 2 bad input.
"""

import json
import os
import re
import sys
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Annotated, Any

import typer
from typer import completion as completions

from .. import strict_json
from ..client import ApiError, Client
from . import declared, installation, tables
from . import doctor as diagnosis
from . import fleet as fleets
from . import install as machine
from .declared import EFFECT_SECONDS
from .settings import ControllerAccess, UsageError, find, keep

application = typer.Typer(
    help="Manage the access-point controller.",
    add_completion=False,
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
    context_settings={"help_option_names": ["-h", "--help"]},
)

LISTS: dict[str, Callable[..., Any]] = {
    "stations": Client.get_stations,
    "flows": Client.get_flows,
    "ports": Client.get_ports,
    "classes": Client.get_classes,
    "feedback": Client.get_feedback,
    "counters": Client.get_counters,
    "rules": Client.get_rules,
    "revisions": Client.list_revisions,
}
OBJECTS: dict[str, Callable[..., Any]] = {
    "config": Client.get_config,
    "features": Client.get_features,
    "class-weights": Client.get_class_weights,
    "ncr": Client.get_ncr,
}
GLOBAL: dict[str, Callable[..., Any]] = {
    "access-points": Client.list_access_points,
    "agents": Client.list_agents,
    "tokens": Client.list_tokens,
    "audit": Client.read_audit,
    "ncr-defaults": Client.get_ncr_defaults,
}
PAGED = ("access-points", "agents", "stations", "flows", "tokens", "audit", "revisions")
SHORT = {"ap": "access-points", "aps": "access-points", "access-point": "access-points"}
CHANGES: dict[str, Callable[..., Any]] = {
    "config": Client.change_config,
    "features": Client.change_features,
    "class-weights": Client.change_class_weights,
    "ncr": Client.change_ncr,
}
OPTIONS_OF = {
    "active": ("flows",),
    "sort": ("flows", "stations"),
    "since": ("history",),
    "resolution": ("history",),
}
"""Lists that each option of `get` is for."""
GETTABLE = [*GLOBAL, *LISTS, *OBJECTS, "history"]
SETTABLE = [*CHANGES, "ncr-defaults", "flow", "station", "port", "rule"]
DELETABLE = ["access-point", "rule", "agent"]


def _names(incomplete: str) -> list[str]:
    """Access points, for completion; a controller that does not answer completes nothing."""
    try:
        with find().client() as client:
            return [ap["name"] for ap in client.list_access_points() if ap["name"].startswith(incomplete)]
    except (ApiError, UsageError):
        return []


def _starting(words: list[str]) -> Callable[[str], list[str]]:
    return lambda incomplete: [word for word in words if word.startswith(incomplete)]


AccessPointArgument = Annotated[str, typer.Argument(metavar="ACCESS_POINT", autocompletion=_names)]
MaybeAccessPoint = Annotated[str | None, typer.Argument(metavar="[ACCESS_POINT]", autocompletion=_names)]
AsJson = Annotated[bool, typer.Option("--json", help="Print the API's JSON.")]
Watch = Annotated[bool, typer.Option("--watch", "-w", help="Repeat every second, until Ctrl-C.")]


@application.callback()
def options(
    context: typer.Context,
    url: Annotated[str | None, typer.Option(help="The controller; also APCTL_URL.")] = None,
    ca: Annotated[
        str | None, typer.Option(help="CA certificate (PEM) used to verify the controller; also APCTL_CA.")
    ] = None,
) -> None:
    """Manage access points through their controller."""
    context.obj = {"url": url, "ca": ca}


def _client(context: typer.Context) -> Client:
    return find(**context.obj).client()


@application.command()
def login(
    context: typer.Context,
    url: Annotated[str, typer.Argument(help="Controller, e.g. https://controller:8443")],
    token_file: Annotated[Path | None, typer.Option(help="The token; without it, from standard input.")] = None,
) -> None:
    """Save URL and token for later commands."""
    try:
        token = (token_file.read_text() if token_file else sys.stdin.read()).strip()
    except OSError as error:
        raise UsageError(f"{token_file}: {(error.strerror or str(error)).lower()}") from None
    access = ControllerAccess(url, token, find(url, token, context.obj["ca"]).ca)
    with access.client() as client:
        who = client.who_am_i()
    print(f"{who['name']}, {who['role']}, until {tables.until(who['expires'])}: kept in {keep(access)}")


@application.command()
def whoami(context: typer.Context, as_json: AsJson = False) -> None:
    """Show name, role and expiry of the token."""
    with _client(context) as client:
        _show(client.who_am_i(), as_json)


@application.command()
def get(
    context: typer.Context,
    what: Annotated[
        str, typer.Argument(metavar="WHAT", help=", ".join(GETTABLE), autocompletion=_starting(GETTABLE))
    ] = "",
    access_point: MaybeAccessPoint = None,
    active: Annotated[bool, typer.Option("--active", help="Of flows: those with traffic.")] = False,
    sort: Annotated[
        str | None,
        typer.Option(help="Of flows: -rate_bps, -bytes, -feedback_total; of stations: -rate_down_bps, -bytes_up etc."),
    ] = None,
    since: Annotated[float | None, typer.Option(help="Of history: how many seconds back; 60 by default.")] = None,
    resolution: Annotated[int | None, typer.Option(help="Of history: 1, 10, 60, 600 seconds.")] = None,
    as_json: AsJson = False,
    watch: Watch = False,
) -> None:
    """List or show objects: `apctl get flows ap1 --active --sort=-rate_bps --watch`"""
    what = SHORT.get(what, what)
    if what not in GETTABLE:
        raise UsageError(f"get {what or 'WHAT'}: one of {', '.join(GETTABLE)}")
    if what in GLOBAL and access_point and what != "access-points":
        raise UsageError(f"`get {what}` takes no ACCESS_POINT argument")
    if what not in GLOBAL and access_point is None:
        raise UsageError(f"get {what}: which ACCESS_POINT?")
    chosen = {"active": active or None, "sort": sort, "since": since, "resolution": resolution}
    given: dict[str, Any] = {option: value for option, value in chosen.items() if value is not None}
    for option in given:
        if what not in OPTIONS_OF[option]:
            raise UsageError(f"`get {what}` has no --{option}, only {' and '.join(OPTIONS_OF[option])}")
    if since is not None and not since > 0:
        raise UsageError(f"--since {since:g}: give seconds above 0")

    def ask(client: Client) -> Any:
        if what == "history":
            back = 60.0 if since is None else since
            return client.get_history(str(access_point), start=-back, resolution=resolution)  # type: ignore[arg-type]
        if what == "access-points" and access_point:
            return client.get_access_point(access_point)
        call = (GLOBAL | LISTS | OBJECTS)[what]
        arguments = () if what in GLOBAL else (access_point,)
        bound = getattr(client, call.__name__)
        return client.every(bound, *arguments, **given) if what in PAGED else bound(*arguments)

    with _client(context) as client:
        while True:
            answer = ask(client)
            if watch and not as_json and sys.stdout.isatty():
                print("\033[H\033[2J", end="")
            _show(answer, as_json, what)
            if not watch:
                return
            sys.stdout.flush()
            time.sleep(1)


def _show(answer: Any, as_json: bool, what: str | None = None) -> None:
    if as_json:
        print(json.dumps(answer, indent=2))
    elif what == "history":
        rows = [
            dict(zip(port["columns"], values, strict=True)) | {"port": port["port"]}
            for port in answer["ports"]
            for values in zip(*port["columns"].values(), strict=True)
        ]
        print(tables.table("history", sorted(rows, key=lambda row: row["time"])))
    elif isinstance(answer, list):
        print(tables.table(str(what), answer) if answer else f"no {str(what).replace('-', ' ')}")
    else:
        print(tables.pairs(answer))


@application.command()
def events(
    context: typer.Context,
    access_point: MaybeAccessPoint = None,
    tick: Annotated[bool, typer.Option("--tick", help="With every tick of the loop, not once a second.")] = False,
) -> None:
    """Print events as they happen, a line of JSON each."""
    with _client(context) as client:
        stream = (
            client.stream_access_point(access_point, every="tick" if tick else "second")
            if access_point
            else client.stream_all()
        )
        for event, data in stream:
            print(json.dumps({"event": event, **data}), flush=True)


def _port(client: Client, access_point: str, word: str) -> int:
    """Return the number of a port, named by it or by its role, where one port alone has that."""
    # Read the desired state: the switch may be away.
    ports = {port["port"]: port["role"] for port in client.get_config(access_point)["ports"]}
    found = [number for number, role in ports.items() if word in (str(number), role)]
    if len(found) != 1:
        there = ", ".join(f"{number} ({role})" for number, role in ports.items())
        raise UsageError(f"port {word}: name one of the ports of {access_point}: {there}")
    return found[0]


RATES = {"capacity": "capacity_bps", "limit_down": "limit_down_bps", "limit_up": "limit_up_bps"}
"""Names of rates that may have a unit, and the fields that they set."""
TEXTS = ("name", "group")
OF_NAMES = ("groups", "stations", "own")
"""Objects whose keys are names of groups or of a law's parameters, or addresses."""
MAX_DEPTH = 32
TRUTHS = {"true": True, "yes": True, "on": True, "false": False, "no": False, "off": False}


def _values(words: list[str]) -> dict[str, Any]:
    """NAME=VALUE; a value is JSON where it can be, else text; `default` takes it back. Rates have units, also within
    JSON: `900kbit`. A name is text also when it looks like a number."""
    values: dict[str, Any] = {}
    for word in words:
        name, equals, value = word.partition("=")
        if not equals or not name:
            raise UsageError(f"{word}: not NAME=VALUE")
        name = RATES.get(name, name)
        if name in values:
            raise UsageError(f"{word}: {name} was given before")
        if name in RATES.values() and value != "default" and not value.isdecimal():
            values[name] = machine.parse_rate(value) or machine.AUTO
            continue
        try:
            values[name] = None if value == "default" else _with_units(strict_json.loads(value), name)
        except ValueError as error:
            if value[:1] in ("{", "["):
                raise UsageError(f"{name}: {strict_json.reason(error)}") from None
            values[name] = _plain(value)
        if name in TEXTS and values[name] is not None and not value.startswith('"'):
            values[name] = value
    return values


def _plain(text: str) -> str | float | bool:
    """Return the number or truth value that a person writes otherwise than JSON does, or the text."""
    if re.fullmatch(r"[+-]?(\d+\.?\d*|\.\d+)", text, re.ASCII):
        return float(text)
    return TRUTHS.get(text.lower(), text)


def _with_units(value: Any, of: str, depth: int = 0) -> Any:
    """Return JSON with its rates in bit/s, under the names of their fields. of: the field whose value it is."""
    if depth > MAX_DEPTH:
        raise UsageError(f"{of}: nested too deeply")
    if isinstance(value, list):
        return [_with_units(item, of, depth + 1) for item in value]
    if not isinstance(value, dict):
        return value
    fields: dict[str, Any] = {}
    for name, item in value.items():
        field = str(name) if of in OF_NAMES else RATES.get(str(name), str(name))
        if field in fields:
            raise UsageError(f"{name}: {field} was given before")
        if of not in OF_NAMES and field in RATES.values() and isinstance(item, str):
            fields[field] = int(item) if item.isdecimal() else machine.parse_rate(item) or machine.AUTO
        else:
            fields[field] = _with_units(item, field, depth + 1)
    return fields


@application.command("set")
def set_(
    context: typer.Context,
    what: Annotated[str, typer.Argument(metavar="WHAT", help=", ".join(SETTABLE), autocompletion=_starting(SETTABLE))],
    words: Annotated[list[str], typer.Argument(metavar="[ACCESS_POINT] [FLOW_INDEX] NAME=VALUE...")],
    as_json: AsJson = False,
) -> None:
    """Change settings: `apctl set port ap1 uplink capacity=900kbit`, `apctl set ncr ap1 queue_target_ms=default`"""
    if what not in SETTABLE:
        raise UsageError(f"set {what}: one of {', '.join(SETTABLE)}")
    places = [word for word in words if "=" not in word]
    of_two = {"flow": "FLOW_INDEX", "station": "MAC_ADDRESS", "port": "PORT"}
    wanted = {"ncr-defaults": 0, **dict.fromkeys(of_two, 2)}.get(what, 1)
    if len(places) != wanted:
        needed = ("no place", "an ACCESS_POINT", f"ACCESS_POINT and {of_two.get(what)}")[wanted]
        raise UsageError(f"set {what}: {needed}, then NAME=VALUE")
    if not words[wanted:]:
        raise UsageError(f"set {what}: nothing to set; add NAME=VALUE")
    body: Any = _values(words[wanted:])
    if what == "rule" and not isinstance(body.get("name"), str):
        raise UsageError("set rule: which rule? Add name=NAME")
    with _client(context) as client:
        if what == "ncr-defaults":
            answer: Mapping[str, Any] = client.change_ncr_defaults(body, wait=EFFECT_SECONDS)
        elif what == "flow":
            if not places[1].isdecimal():
                raise UsageError(f"set flow: {places[1]} is no FLOW_INDEX")
            answer = client.change_flow(places[0], int(places[1]), body)
        elif what == "station":
            answer = client.change_station(places[0], places[1].lower(), body, wait=EFFECT_SECONDS)
        elif what == "port":
            port = _port(client, places[0], places[1])
            answer = client.change_port(places[0], port, body, wait=EFFECT_SECONDS)
        elif what == "rule":
            answer = client.put_rule(places[0], str(body.get("name", "")), body, wait=EFFECT_SECONDS)
        else:
            answer = getattr(client, CHANGES[what].__name__)(places[0], body, wait=EFFECT_SECONDS)
        _show(answer, as_json)
        _report_effect(client, *places[:1])


def _report_effect(client: Client, *access_points: str) -> None:
    """Report on stderr when the last change of an access point (none: of all) is kept and not in effect yet."""
    if client.in_effect:
        return
    for ap in client.every(client.list_access_points):
        if ap["revision"] != ap["revision_in_effect"] and ap["name"] in (access_points or (ap["name"],)):
            reason = ap["problem"] or "it is being brought about"
            print(f"{ap['name']}: revision {ap['revision']} is kept, and not in effect yet: {reason}", file=sys.stderr)


def _enable(context: typer.Context, access_point: str, enabled: bool) -> None:
    with _client(context) as client:
        client.change_config(access_point, {"enabled": enabled}, wait=EFFECT_SECONDS)
        print(f"{access_point} {'connects' if enabled else 'disconnected'}")
        _report_effect(client, access_point)


@application.command()
def connect(context: typer.Context, access_point: AccessPointArgument) -> None:
    """Hold a session with an access point's switch."""
    _enable(context, access_point, True)


@application.command()
def disconnect(context: typer.Context, access_point: AccessPointArgument) -> None:
    """End the session; the switch keeps forwarding, without feedback."""
    _enable(context, access_point, False)


@application.command()
def add(
    context: typer.Context,
    file: Annotated[Path, typer.Option("--file", "-f", help="The access point as JSON; - for standard input.")],
) -> None:
    """Add an access point: `apctl add -f ap2.json`"""
    try:
        body = strict_json.loads(sys.stdin.read() if str(file) == "-" else file.read_text())
    except OSError as error:
        raise UsageError(f"{file}: {(error.strerror or str(error)).lower()}") from None
    except ValueError as error:
        raise UsageError(f"{file}: {strict_json.reason(error)}") from None
    with _client(context) as client:
        name = client.add_access_point(body, wait=EFFECT_SECONDS)["name"]
        print(f"{name} added")
        _report_effect(client, name)


Declared = Annotated[
    Path, typer.Option("--file", "-f", help="Access points as JSON: a file, a folder of them, - for standard input.")
]
Prune = Annotated[bool, typer.Option("--prune", help="Also remove the access points that are in no file.")]
Yes = Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")]


def _plan(client: Client, file: Path, prune: bool) -> list[declared.Step]:
    return list(declared.plan(client, declared.read(file, sys.stdin.read() if str(file) == "-" else ""), prune))


@application.command()
def diff(context: typer.Context, file: Declared, prune: Prune = False) -> None:
    """Show the changes that `apply` would make; exit code 1 when there are any."""
    with _client(context) as client:
        steps = _plan(client, file, prune)
    for step in steps:
        print("\n".join(step.lines), end="\n" if step.lines else "")
    raise typer.Exit(any(step.kind != "keep" for step in steps))


@application.command()
def apply(context: typer.Context, file: Declared, prune: Prune = False, yes: Yes = False) -> None:
    """Apply access points from files: `apctl apply -f access-points/`. A field that is left out has its default."""
    with _client(context) as client:
        steps = _plan(client, file, prune)
        removed = [step.name for step in steps if step.kind == "remove"]
        if removed:
            _confirm(f"remove {', '.join(removed)} and their history?", yes)
        for step, line in declared.bring_about(client, steps):
            print(line)
            _report_effect(client, step.name)


@application.command()
def rollback(
    context: typer.Context,
    access_point: AccessPointArgument,
    revision: Annotated[int, typer.Argument(help="As `apctl get revisions` has it.")],
) -> None:
    """Restore an earlier configuration: `apctl rollback ap1 17`"""
    with _client(context) as client:
        client.restore_revision(access_point, revision, wait=EFFECT_SECONDS)
        print(f"{access_point} is as of revision {revision}")
        _report_effect(client, access_point)


def _confirm(question: str, yes: bool) -> None:
    """Ask before continuing; abort without consent."""
    if yes:
        return
    if not sys.stdin.isatty():
        raise UsageError(f"{question} Confirm with --yes")
    typer.confirm(question, abort=True)


@application.command()
def delete(
    context: typer.Context,
    what: Annotated[
        str,
        typer.Argument(metavar="WHAT", help=", ".join(DELETABLE), autocompletion=_starting(DELETABLE)),
    ],
    access_point: AccessPointArgument,
    rule: Annotated[str | None, typer.Argument(metavar="[RULE]")] = None,
    yes: Yes = False,
) -> None:
    """Remove an access point with its history, a rule of one, or an agent; asks first."""
    with _client(context) as client:
        if what == "rule" and rule:
            _confirm(f"remove rule {rule} of {access_point}?", yes)
            client.delete_rule(access_point, rule, wait=EFFECT_SECONDS)
            _report_effect(client, access_point)
        elif SHORT.get(what) == "access-points" and rule is None:
            _confirm(f"remove {access_point} and its history?", yes)
            client.remove_access_point(access_point)
        elif what == "agent" and rule is None:
            _confirm(f"stop renewing the token of agent {access_point}?", yes)
            client.forget_agent(access_point)
        else:
            raise UsageError(
                "delete access-point ACCESS_POINT, delete rule ACCESS_POINT RULE, or delete agent ID; "
                "`apctl token revoke ID` ends a token"
            )
    print(f"{rule or access_point} removed")


@application.command()
def adopt(
    context: typer.Context, agent: Annotated[str, typer.Argument(metavar="AGENT")], access_point: AccessPointArgument
) -> None:
    """Adopt an agent that announces itself: `apctl get agents` lists them."""
    with _client(context) as client:
        client.adopt_agent(agent, {"access_point": access_point})
    print(f"adopted as {access_point}")


token = typer.Typer(help="Tokens: create, revoke.", no_args_is_help=True, rich_markup_mode=None)
application.add_typer(token, name="token")


@token.command("create")
def create_token(
    context: typer.Context,
    name: Annotated[str, typer.Argument(help="Name of its holder, as in the audit log.")],
    role: Annotated[str, typer.Option(help="viewer, operator, admin")] = "viewer",
    days: Annotated[float, typer.Option(help="When it expires; 0 for never.")] = 90,
) -> None:
    """Create a token and print it: it is shown only once."""
    body: Any = {"name": name, "role": role, "expires_in": days * 86_400 if days else None}
    with _client(context) as client:
        print(client.create_token(body)["token"])


@token.command("revoke")
def revoke_token(context: typer.Context, token_id: Annotated[str, typer.Argument(metavar="ID")]) -> None:
    """Revoke a token, and the sessions that were opened with it."""
    with _client(context) as client:
        client.revoke_token(token_id)
    print(f"{token_id} revoked")


@application.command()
def doctor(
    context: typer.Context,
    interface: Annotated[list[str] | None, typer.Option(help="A port of this machine to check; repeatable.")] = None,
) -> None:
    """Check access points and interfaces, and show each problem with its fix; exit code 1 after an error."""
    findings = list(fleets.findings())
    try:
        asked = _client(context)
    except UsageError:
        if not findings:
            raise
        # An agent's machine needs no access to a replica.
        findings.append(diagnosis.Finding("warning", "no replica was asked", "`apctl login` gives its address"))
    else:
        with asked as client:
            findings += diagnosis.controller(client)
    for name in interface or []:
        found = list(diagnosis.interface(name))
        findings += found or [diagnosis.Finding("ok", f"{name} can be a port")]
    for finding in findings:
        print(finding)
    raise typer.Exit(any(finding.level == "error" for finding in findings))


application.command()(installation.init)
application.command("init-replica")(installation.init_replica)
application.command()(installation.uninstall)


@application.command()
def completion(shell: Annotated[str, typer.Argument(help="bash, zsh, fish")]) -> None:
    """Print the completions of a shell: `source <(apctl completion bash)`"""
    if shell not in ("bash", "zsh", "fish"):
        raise UsageError(f"completion {shell}: one of bash, zsh, fish")
    print(completions.get_completion_script(prog_name="apctl", complete_var="_APCTL_COMPLETE", shell=shell))


def _refuse_other_text(words: list[str]) -> None:
    """Raises `UsageError` for an argument that is not UTF-8."""
    for word in words:
        try:
            word.encode()
        except UnicodeEncodeError:
            raise UsageError(f"{word!r}: not UTF-8 text") from None


def main() -> int:
    """Run; an error is one line."""
    if "_APCTL_COMPLETE" in os.environ:
        # Without its options for completion, typer leaves click's own completion in place.
        completions.completion_init()
    try:
        _refuse_other_text(sys.argv[1:])
        application(prog_name="apctl")
    except UsageError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    except ApiError as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    except (KeyboardInterrupt, BrokenPipeError):
        return 130
    return 0


if __name__ == "__main__":
    sys.exit(main())
