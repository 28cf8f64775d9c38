# SPDX-License-Identifier: Apache-2.0
"""Every operation of the API. Made by `make client`; not edited by hand."""

from collections.abc import Iterator
from typing import Any, Literal, cast

from . import models
from .transport import Transport, quote


class Client(Transport):
    """The API as methods; each raises `ApiError` for an answer that is an error."""

    def list_access_points(
        self,
        *,
        limit: int | None = None,
        offset: int | None = None,
        state: Literal["connecting", "backup", "ready", "stopped"] | None = None,
    ) -> list[models.AccessPointAnswer]:
        """All access points with their states; `state` selects one state."""
        return cast(
            list[models.AccessPointAnswer],
            self.call("GET", "/api/v1/access-points", query={"limit": limit, "offset": offset, "state": state}),
        )

    def add_access_point(
        self,
        body: models.AccessPointConfig,
        *,
        validate: bool | None = None,
        wait: float | None = None,
        idempotency_key: str | None = None,
    ) -> models.AccessPointConfig:
        """Add an access point; it is connected at once unless `enabled` is false."""
        return cast(
            models.AccessPointConfig,
            self.call(
                "POST",
                "/api/v1/access-points",
                query={"validate": validate, "wait": wait},
                body=body,
                headers={"idempotency-key": idempotency_key},
            ),
        )

    def get_access_point(self, name: str) -> models.AccessPointAnswer:
        """One access point with its state."""
        return cast(models.AccessPointAnswer, self.call("GET", f"/api/v1/access-points/{quote(name)}"))

    def remove_access_point(self, name: str, *, validate: bool | None = None, if_match: str | None = None) -> None:
        """Remove an access point and its history. Its switch keeps forwarding, without feedback."""
        self.call(
            "DELETE",
            f"/api/v1/access-points/{quote(name)}",
            query={"validate": validate},
            headers={"if-match": if_match},
        )

    def get_config(self, name: str, *, if_none_match: str | None = None) -> models.AccessPointConfig:
        """Whole configuration of an access point, as it is in use."""
        return cast(
            models.AccessPointConfig,
            self.call("GET", f"/api/v1/access-points/{quote(name)}/config", headers={"if-none-match": if_none_match}),
        )

    def change_config(
        self,
        name: str,
        body: models.AccessPointConfigPatch,
        *,
        validate: bool | None = None,
        wait: float | None = None,
        idempotency_key: str | None = None,
        if_match: str | None = None,
    ) -> models.AccessPointConfig:
        """Change anything: `{"enabled": false}` disconnects. Another address or role of a port begins a new
        session."""
        return cast(
            models.AccessPointConfig,
            self.call(
                "PATCH",
                f"/api/v1/access-points/{quote(name)}/config",
                query={"validate": validate, "wait": wait},
                body=body,
                headers={"idempotency-key": idempotency_key, "if-match": if_match},
            ),
        )

    def replace_config(
        self,
        name: str,
        body: models.AccessPointConfig,
        *,
        validate: bool | None = None,
        wait: float | None = None,
        if_match: str | None = None,
    ) -> models.AccessPointConfig:
        """Replace the whole configuration: fields that are left out get their defaults."""
        return cast(
            models.AccessPointConfig,
            self.call(
                "PUT",
                f"/api/v1/access-points/{quote(name)}/config",
                query={"validate": validate, "wait": wait},
                body=body,
                headers={"if-match": if_match},
            ),
        )

    def list_revisions(
        self, name: str, *, limit: int | None = None, offset: int | None = None
    ) -> list[models.RevisionAnswer]:
        """Desired configurations of the access point and who changed them, newest first; the last 100 are
        kept."""
        return cast(
            list[models.RevisionAnswer],
            self.call(
                "GET", f"/api/v1/access-points/{quote(name)}/revisions", query={"limit": limit, "offset": offset}
            ),
        )

    def get_revision(self, name: str, revision: int) -> models.RevisionAnswer:
        """One revision of an access point."""
        return cast(
            models.RevisionAnswer, self.call("GET", f"/api/v1/access-points/{quote(name)}/revisions/{quote(revision)}")
        )

    def restore_revision(
        self,
        name: str,
        revision: int,
        *,
        validate: bool | None = None,
        wait: float | None = None,
        idempotency_key: str | None = None,
        if_match: str | None = None,
    ) -> models.AccessPointConfig:
        """Restore the configuration of a revision. `If-Match` is about the whole configuration."""
        return cast(
            models.AccessPointConfig,
            self.call(
                "POST",
                f"/api/v1/access-points/{quote(name)}/revisions/{quote(revision)}/restore",
                query={"validate": validate, "wait": wait},
                headers={"idempotency-key": idempotency_key, "if-match": if_match},
            ),
        )

    def get_class_weights(self, name: str, *, if_none_match: str | None = None) -> models.ClassWeights:
        """Weights of the classes."""
        return cast(
            models.ClassWeights,
            self.call(
                "GET", f"/api/v1/access-points/{quote(name)}/class-weights", headers={"if-none-match": if_none_match}
            ),
        )

    def change_class_weights(
        self,
        name: str,
        body: models.ClassWeightsPatch,
        *,
        validate: bool | None = None,
        wait: float | None = None,
        idempotency_key: str | None = None,
        if_match: str | None = None,
    ) -> models.ClassWeights:
        """Protect a class more or less: `{"downlink": 8}`"""
        return cast(
            models.ClassWeights,
            self.call(
                "PATCH",
                f"/api/v1/access-points/{quote(name)}/class-weights",
                query={"validate": validate, "wait": wait},
                body=body,
                headers={"idempotency-key": idempotency_key, "if-match": if_match},
            ),
        )

    def get_features(self, name: str, *, if_none_match: str | None = None) -> models.Features:
        """Enabled features."""
        return cast(
            models.Features,
            self.call("GET", f"/api/v1/access-points/{quote(name)}/features", headers={"if-none-match": if_none_match}),
        )

    def change_features(
        self,
        name: str,
        body: models.FeaturesPatch,
        *,
        validate: bool | None = None,
        wait: float | None = None,
        idempotency_key: str | None = None,
        if_match: str | None = None,
    ) -> models.Features:
        """Turn features on or off: `{"sparse": false, "gate": {"2": {"buffer": 100, "batch": 16}}}`"""
        return cast(
            models.Features,
            self.call(
                "PATCH",
                f"/api/v1/access-points/{quote(name)}/features",
                query={"validate": validate, "wait": wait},
                body=body,
                headers={"idempotency-key": idempotency_key, "if-match": if_match},
            ),
        )

    def get_ncr(self, name: str, *, if_none_match: str | None = None) -> models.Ncr:
        """The parameters of the feedback, with the defaults for those that this access point leaves open."""
        return cast(
            models.Ncr,
            self.call("GET", f"/api/v1/access-points/{quote(name)}/ncr", headers={"if-none-match": if_none_match}),
        )

    def change_ncr(
        self,
        name: str,
        body: models.NcrPatch,
        *,
        validate: bool | None = None,
        wait: float | None = None,
        idempotency_key: str | None = None,
        if_match: str | None = None,
    ) -> models.Ncr:
        """Change parameters; the next tick uses them: `{"queue_target_ms": 5}`. Null follows the default
        again."""
        return cast(
            models.Ncr,
            self.call(
                "PATCH",
                f"/api/v1/access-points/{quote(name)}/ncr",
                query={"validate": validate, "wait": wait},
                body=body,
                headers={"idempotency-key": idempotency_key, "if-match": if_match},
            ),
        )

    def get_ncr_defaults(self, *, if_none_match: str | None = None) -> models.Ncr:
        """Default parameters, for every access point that does not set its own."""
        return cast(models.Ncr, self.call("GET", "/api/v1/ncr-defaults", headers={"if-none-match": if_none_match}))

    def change_ncr_defaults(
        self,
        body: models.NcrPatch,
        *,
        validate: bool | None = None,
        wait: float | None = None,
        idempotency_key: str | None = None,
        if_match: str | None = None,
    ) -> models.Ncr:
        """Change the defaults; every access point that follows them does so with its next tick."""
        return cast(
            models.Ncr,
            self.call(
                "PATCH",
                "/api/v1/ncr-defaults",
                query={"validate": validate, "wait": wait},
                body=body,
                headers={"idempotency-key": idempotency_key, "if-match": if_match},
            ),
        )

    def get_rules(self, name: str, *, if_none_match: str | None = None) -> list[models.Rule]:
        """The operator's rules, which assign packets to classes and queues."""
        return cast(
            list[models.Rule],
            self.call("GET", f"/api/v1/access-points/{quote(name)}/rules", headers={"if-none-match": if_none_match}),
        )

    def get_rule(self, name: str, rule: str, *, if_none_match: str | None = None) -> models.Rule:
        """One rule."""
        return cast(
            models.Rule,
            self.call(
                "GET",
                f"/api/v1/access-points/{quote(name)}/rules/{quote(rule)}",
                headers={"if-none-match": if_none_match},
            ),
        )

    def put_rule(
        self,
        name: str,
        rule: str,
        body: models.Rule,
        *,
        validate: bool | None = None,
        wait: float | None = None,
        if_match: str | None = None,
    ) -> models.Rule:
        """Add or replace a rule: `{"name": "voice", "dscp": 46, "class_id": 3, "queue": 6, "regulated":
        false}`"""
        return cast(
            models.Rule,
            self.call(
                "PUT",
                f"/api/v1/access-points/{quote(name)}/rules/{quote(rule)}",
                query={"validate": validate, "wait": wait},
                body=body,
                headers={"if-match": if_match},
            ),
        )

    def delete_rule(
        self,
        name: str,
        rule: str,
        *,
        validate: bool | None = None,
        wait: float | None = None,
        if_match: str | None = None,
    ) -> None:
        """Remove a rule."""
        self.call(
            "DELETE",
            f"/api/v1/access-points/{quote(name)}/rules/{quote(rule)}",
            query={"validate": validate, "wait": wait},
            headers={"if-match": if_match},
        )

    def list_measures(self) -> list[models.MeasureAnswer]:
        """Measures of access points, ports, classes of ports, and stations, and where each is found."""
        return cast(list[models.MeasureAnswer], self.call("GET", "/api/v1/measures"))

    def get_ports(self, name: str) -> list[models.PortAnswer]:
        """Ports with link state, queue, and packets sent, marked, dropped and filtered by class."""
        return cast(list[models.PortAnswer], self.call("GET", f"/api/v1/access-points/{quote(name)}/ports"))

    def get_port(self, name: str, port: int) -> models.PortAnswer:
        """One port. The ETag is of its configuration."""
        return cast(models.PortAnswer, self.call("GET", f"/api/v1/access-points/{quote(name)}/ports/{quote(port)}"))

    def change_port(
        self,
        name: str,
        port: int,
        body: models.PortPatch,
        *,
        validate: bool | None = None,
        wait: float | None = None,
        idempotency_key: str | None = None,
        if_match: str | None = None,
    ) -> models.PortAnswer:
        """Change what feedback takes a port for: `{"capacity_bps": 900000}`. The session, counters and
        feedback stay."""
        return cast(
            models.PortAnswer,
            self.call(
                "PATCH",
                f"/api/v1/access-points/{quote(name)}/ports/{quote(port)}",
                query={"validate": validate, "wait": wait},
                body=body,
                headers={"idempotency-key": idempotency_key, "if-match": if_match},
            ),
        )

    def get_classes(self, name: str) -> list[models.ClassAnswer]:
        """Classes in use, with the weight and the sent volume of each."""
        return cast(list[models.ClassAnswer], self.call("GET", f"/api/v1/access-points/{quote(name)}/classes"))

    def get_feedback(self, name: str) -> list[models.FeedbackAnswer]:
        """Current feedback of each port."""
        return cast(list[models.FeedbackAnswer], self.call("GET", f"/api/v1/access-points/{quote(name)}/feedback"))

    def get_counters(self, name: str) -> list[models.CounterAnswer]:
        """All counters that are not 0, read from the switch now."""
        return cast(list[models.CounterAnswer], self.call("GET", f"/api/v1/access-points/{quote(name)}/counters"))

    def get_stations(
        self,
        name: str,
        *,
        limit: int | None = None,
        offset: int | None = None,
        port: int | None = None,
        role: Literal["station", "uplink", "none"] | None = None,
        name_contains: str | None = None,
        sort: Literal["address", "-rate_down_bps", "-rate_up_bps", "-bytes_down", "-bytes_up"] | None = None,
    ) -> list[models.StationAnswer]:
        """Learned MAC addresses with port, usage and settings."""
        return cast(
            list[models.StationAnswer],
            self.call(
                "GET",
                f"/api/v1/access-points/{quote(name)}/stations",
                query={
                    "limit": limit,
                    "offset": offset,
                    "port": port,
                    "role": role,
                    "name_contains": name_contains,
                    "sort": sort,
                },
            ),
        )

    def get_station(self, name: str, station: str) -> models.OneStationAnswer:
        """One MAC address, also of a disconnected station. The ETag is of its settings."""
        return cast(
            models.OneStationAnswer, self.call("GET", f"/api/v1/access-points/{quote(name)}/stations/{quote(station)}")
        )

    def change_station(
        self,
        name: str,
        station: str,
        body: models.StationPatch,
        *,
        validate: bool | None = None,
        wait: float | None = None,
        idempotency_key: str | None = None,
        if_match: str | None = None,
    ) -> models.OneStationAnswer:
        """Change settings of a station: `{"name": "Printer", "limit_down_bps": 5000000}`. Null removes a
        setting."""
        return cast(
            models.OneStationAnswer,
            self.call(
                "PATCH",
                f"/api/v1/access-points/{quote(name)}/stations/{quote(station)}",
                query={"validate": validate, "wait": wait},
                body=body,
                headers={"idempotency-key": idempotency_key, "if-match": if_match},
            ),
        )

    def get_flows(
        self,
        name: str,
        *,
        limit: int | None = None,
        offset: int | None = None,
        active: bool | None = None,
        direction: Literal["local", "uplink", "downlink"] | None = None,
        class_id: int | None = None,
        protocol: int | None = None,
        port: int | None = None,
        address: str | None = None,
        sort: Literal["flow_index", "-rate_bps", "-bytes", "-feedback_total"] | None = None,
    ) -> list[models.FlowObservation]:
        """The flows with the three terms of each: `feedback` (its own), `feedback_class`, `feedback_device`;
        and their sum, `feedback_total`, which is what a packet meets."""
        return cast(
            list[models.FlowObservation],
            self.call(
                "GET",
                f"/api/v1/access-points/{quote(name)}/flows",
                query={
                    "limit": limit,
                    "offset": offset,
                    "active": active,
                    "direction": direction,
                    "class_id": class_id,
                    "protocol": protocol,
                    "port": port,
                    "address": address,
                    "sort": sort,
                },
            ),
        )

    def get_flow(self, name: str, flow_index: int) -> models.FlowObservation:
        """One flow."""
        return cast(
            models.FlowObservation, self.call("GET", f"/api/v1/access-points/{quote(name)}/flows/{quote(flow_index)}")
        )

    def change_flow(
        self, name: str, flow_index: int, body: models.FlowPatch, *, idempotency_key: str | None = None
    ) -> models.FlowObservation:
        """Change a flow's weight, or the class that it asks for, as long as it lives: `{"weight": 2}`"""
        return cast(
            models.FlowObservation,
            self.call(
                "PATCH",
                f"/api/v1/access-points/{quote(name)}/flows/{quote(flow_index)}",
                body=body,
                headers={"idempotency-key": idempotency_key},
            ),
        )

    def get_history(
        self,
        name: str,
        *,
        start: float | None = None,
        end: float | None = None,
        resolution: Literal[1, 10, 60, 600] | None = None,
        port: int | None = None,
    ) -> models.HistoryAnswer:
        """Samples of measures, of the last hour unless `start` is given. 1 s is kept for 2 hours, 10 s for 2
        days, a minute for 30 days, 10 minutes for a year."""
        return cast(
            models.HistoryAnswer,
            self.call(
                "GET",
                f"/api/v1/access-points/{quote(name)}/history",
                query={"start": start, "end": end, "resolution": resolution, "port": port},
            ),
        )

    def get_station_history(
        self,
        name: str,
        station: str,
        *,
        start: float | None = None,
        end: float | None = None,
        resolution: Literal[60, 600] | None = None,
    ) -> models.StationHistoryAnswer:
        """Usage of a station, of the last hour unless `start` is given. A minute is kept for 30 days, 10
        minutes for a year. An unknown address has used nothing."""
        return cast(
            models.StationHistoryAnswer,
            self.call(
                "GET",
                f"/api/v1/access-points/{quote(name)}/stations/{quote(station)}/history",
                query={"start": start, "end": end, "resolution": resolution},
            ),
        )

    def stream_all(self) -> Iterator[tuple[str, Any]]:
        """Every access point, once a second."""
        return self.stream("/api/v1/events")

    def stream_access_point(
        self, name: str, *, every: Literal["tick", "second"] | None = None
    ) -> Iterator[tuple[str, Any]]:
        """One access point, once a second or with every tick of its loop."""
        return self.stream(f"/api/v1/access-points/{quote(name)}/events", query={"every": every})

    def list_agents(self, *, limit: int | None = None, offset: int | None = None) -> list[models.AgentAnswer]:
        """Agents that wait to be adopted first, then adopted agents."""
        return cast(
            list[models.AgentAnswer], self.call("GET", "/api/v1/agents", query={"limit": limit, "offset": offset})
        )

    def adopt_agent(self, agent_id: str, body: models.Adoption) -> models.AgentAnswer:
        """Adopt an agent for an access point: `{"access_point": "ap1"}`. A new access point is added, as the
        agent says that it is."""
        return cast(models.AgentAnswer, self.call("PUT", f"/api/v1/agents/{quote(agent_id)}", body=body))

    def forget_agent(self, agent_id: str) -> None:
        """Renew its token no more: it ends by itself, 30 days after it was given."""
        self.call("DELETE", f"/api/v1/agents/{quote(agent_id)}")

    def list_tokens(self, *, limit: int | None = None, offset: int | None = None) -> list[models.TokenAnswer]:
        """Every token, also those that expired or were revoked."""
        return cast(
            list[models.TokenAnswer], self.call("GET", "/api/v1/tokens", query={"limit": limit, "offset": offset})
        )

    def create_token(self, body: models.NewToken, *, idempotency_key: str | None = None) -> models.NewTokenAnswer:
        """Make a token. Its secret is in this answer only."""
        return cast(
            models.NewTokenAnswer,
            self.call("POST", "/api/v1/tokens", body=body, headers={"idempotency-key": idempotency_key}),
        )

    def revoke_token(self, token_id: str) -> None:
        """Revoke a token, and the sessions that were opened with it."""
        self.call("DELETE", f"/api/v1/tokens/{quote(token_id)}")

    def who_am_i(self) -> models.SessionAnswer:
        """Name and role of the token that asks."""
        return cast(models.SessionAnswer, self.call("GET", "/api/v1/session"))

    def log_in(self, body: models.Login) -> models.SessionAnswer:
        """Open a session for a browser: a cookie that scripts cannot read and other sites cannot use."""
        return cast(models.SessionAnswer, self.call("POST", "/api/v1/session", body=body))

    def log_out(self) -> None:
        """End a browser's session."""
        self.call("DELETE", "/api/v1/session")

    def read_audit(
        self,
        *,
        limit: int | None = None,
        offset: int | None = None,
        actor: str | None = None,
        start: float | None = None,
        end: float | None = None,
    ) -> list[models.AuditAnswer]:
        """All changes with actor, address, action and time; newest first."""
        return cast(
            list[models.AuditAnswer],
            self.call(
                "GET",
                "/api/v1/audit",
                query={"limit": limit, "offset": offset, "actor": actor, "start": start, "end": end},
            ),
        )

    def health(self) -> models.HealthAnswer:
        """Answers while the process runs; needs no token."""
        return cast(models.HealthAnswer, self.call("GET", "/healthz"))

    def ready(self) -> models.ReadyAnswer:
        """Answers when the service can do its work: it has started, and the database answers; needs no
        token."""
        return cast(models.ReadyAnswer, self.call("GET", "/readyz"))
