// SPDX-License-Identifier: Apache-2.0
//! Traffic model of "Instantaneous fairness of TCP in heterogeneous traffic wireless LAN environments", section 3.1:
//! user i is a sequence of transmission sessions (s, l), start and length; an endless one is persistent traffic.

use std::net::IpAddr;

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use hosts_base::Error;

const MAX_USERS: usize = 10_000;
const MAX_SESSIONS: usize = 100_000;
const MAX_SECONDS: f64 = 7.0 * 86_400.0;
const MAX_BYTES: u64 = 1 << 50;

/// Model of a run: users and their sessions.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Model {
    /// Length of the run: endless sessions end then, and others that have not finished.
    pub seconds: f64,
    pub connection: Connection,
    pub users: Vec<User>,
}

/// Lifetime of a TCP connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Connection {
    /// All sessions of a user, one after the other: the paper's.
    User,
    /// One session.
    Session,
}

#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct User {
    pub name: String,
    pub direction: Direction,
    /// Congestion control of the sending side; `None`: the system's.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub congestion: Option<String>,
    /// Interface and address that the client uses.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub interface: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub source: Option<IpAddr>,
    pub sessions: Vec<Session>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Direction {
    /// Data from the server to the client.
    Down,
    Up,
}

/// Session T = (s, l), or a repetition of it every `period`.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Session {
    /// Start in s since the run began
    pub start: f64,
    pub length: Length,
    /// Period in s; `None`: once
    #[serde(skip_serializing_if = "Option::is_none")]
    pub period: Option<f64>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Length {
    Bytes(u64),
    Endless,
}

impl Serialize for Length {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self {
            Length::Bytes(bytes) => serializer.serialize_u64(*bytes),
            Length::Endless => serializer.serialize_str("endless"),
        }
    }
}

impl Model {
    /// Parse a model. Errors are one line that begins with the field: `users[2].sessions[0].length: ...`.
    pub fn parse(text: &str) -> Result<Model, Error> {
        let value: Value = serde_json::from_str(text).map_err(|e| Error::new(format!("not JSON: {e}")))?;
        let root = Object::new("the model", "", &value, &["seconds", "connection", "users"])?;
        let users = root.required("users", |path, value| {
            let list = array(path, value, MAX_USERS, "users")?;
            list.iter().enumerate().map(|(i, user)| parse_user(&format!("{path}[{i}]"), i, user)).collect()
        })?;
        let model = Model {
            seconds: root.required("seconds", |path, value| number(path, value, 0.001, MAX_SECONDS, "seconds"))?,
            connection: root
                .optional("connection", |path, value| one_of(path, value, &["user", "session"]))?
                .unwrap_or(Connection::User),
            users,
        };
        model.check()?;
        Ok(model)
    }

    fn check(&self) -> Result<(), Error> {
        let mut names: Vec<&str> = self.users.iter().map(|user| user.name.as_str()).collect();
        names.sort_unstable();
        if let Some(twice) = names.windows(2).find(|pair| pair[0] == pair[1]) {
            return Err(Error::new(format!(
                "users: two have the name '{}', give each its own",
                twice[0].escape_debug()
            )));
        }
        let mut total = 0.0;
        for (i, user) in self.users.iter().enumerate() {
            for (j, session) in user.sessions.iter().enumerate() {
                let path = format!("users[{i}].sessions[{j}]");
                if session.start >= self.seconds {
                    return Err(Error::new(format!(
                        "{path}.start: {} s is not before the end of the run, {} s (`seconds`)",
                        session.start, self.seconds
                    )));
                }
                total += session.period.map_or(1.0, |period| ((self.seconds - session.start) / period).ceil());
            }
            let endless = user.sessions.iter().any(|session| session.length == Length::Endless);
            if endless && self.connection == Connection::User && user.sessions.len() > 1 {
                return Err(Error::new(format!(
                    "users[{i}].sessions: an endless one leaves no space for others on one connection; \
                     make it a user of its own, or set connection to \"session\""
                )));
            }
        }
        if total > MAX_SESSIONS as f64 {
            return Err(Error::new(format!("users: {total:.0} sessions in all are more than {MAX_SESSIONS}")));
        }
        Ok(())
    }

    /// Make the paper's models (section 4.2): `nodes` nodes, an even number, of which the first half persistently sends
    /// in `direction` and the other half sends `length` bytes every `period` s, each beginning at another time.
    pub fn of_paper(nodes: usize, length: u64, period: f64, direction: Direction, seconds: f64) -> Model {
        let half = nodes / 2;
        let users = (0..nodes).map(|node| {
            let session = match node.checked_sub(half) {
                None => Session { start: 0.0, length: Length::Endless, period: None },
                // In the middle of equal parts of the period, to the microsecond.
                Some(i) => {
                    let start = (1e6 * period * (i as f64 + 0.5) / half as f64).round() / 1e6;
                    Session { start, length: Length::Bytes(length), period: Some(period) }
                }
            };
            User {
                name: format!("sta{}", node + 1),
                direction,
                congestion: None,
                interface: None,
                source: None,
                sessions: vec![session],
            }
        });
        Model { seconds, connection: Connection::User, users: users.collect() }
    }
}

impl User {
    /// Return (start in s, length) of every session within a run of `seconds`, by start.
    pub fn schedule(&self, seconds: f64) -> Vec<(f64, Length)> {
        let mut all = Vec::new();
        for session in &self.sessions {
            let repeats =
                session.period.map_or(1, |period| ((seconds - session.start) / period).ceil().max(1.0) as usize);
            let period = session.period.unwrap_or(0.0);
            all.extend((0..repeats).map(|i| (session.start + i as f64 * period, session.length)));
        }
        all.sort_by(|a, b| a.0.total_cmp(&b.0));
        all
    }
}

fn parse_user(path: &str, index: usize, value: &Value) -> Result<User, Error> {
    let user = Object::new(path, path, value, &["name", "direction", "congestion", "interface", "source", "sessions"])?;
    Ok(User {
        name: user.optional("name", |path, v| text(path, v, 64))?.unwrap_or_else(|| format!("user{}", index + 1)),
        direction: user.required("direction", |path, v| one_of(path, v, &["down", "up"]))?,
        congestion: user.optional("congestion", |path, v| text(path, v, 15))?,
        interface: user.optional("interface", |path, v| text(path, v, 15))?,
        source: user
            .optional("source", |path, v| text(path, v, 64)?.parse().map_err(|_| wrong(path, v, "no IP address")))?,
        sessions: user.required("sessions", |path, v| {
            let list = array(path, v, MAX_SESSIONS, "sessions")?;
            list.iter().enumerate().map(|(j, session)| parse_session(&format!("{path}[{j}]"), session)).collect()
        })?,
    })
}

fn parse_session(path: &str, value: &Value) -> Result<Session, Error> {
    let session = Object::new(path, path, value, &["start", "length", "period"])?;
    let length = session.required("length", |path, v| match v {
        Value::String(word) if word == "endless" => Ok(Length::Endless),
        _ => match v.as_u64() {
            Some(bytes @ 1..=MAX_BYTES) => Ok(Length::Bytes(bytes)),
            _ => Err(wrong(path, v, "no number of bytes from 1 on, nor \"endless\"")),
        },
    })?;
    let start = session.required("start", |path, v| number(path, v, 0.0, MAX_SECONDS, "seconds"))?;
    let period = session.optional("period", |path, v| {
        if length == Length::Endless {
            return Err(Error::new(format!("{path}: an endless session has no period, leave it out")));
        }
        number(path, v, 0.001, MAX_SECONDS, "seconds")
    })?;
    Ok(Session { start, length, period })
}

/// JSON object whose fields are known.
struct Object<'a> {
    name: String,
    prefix: String,
    fields: &'a Map<String, Value>,
}

impl<'a> Object<'a> {
    fn new(name: &str, path: &str, value: &'a Value, known: &[&str]) -> Result<Object<'a>, Error> {
        let fields = value.as_object().ok_or_else(|| wrong(name, value, "no object { ... }"))?;
        let prefix = if path.is_empty() { String::new() } else { format!("{path}.") };
        match fields.keys().find(|key| !known.contains(&key.as_str())) {
            Some(key) => Err(Error::new(format!(
                "{prefix}{}: no such field, there are {}",
                key.escape_debug(),
                known.join(", ")
            ))),
            None => Ok(Object { name: name.to_owned(), prefix, fields }),
        }
    }

    fn required<T>(&self, key: &str, read: impl Fn(&str, &Value) -> Result<T, Error>) -> Result<T, Error> {
        let missing = || Error::new(format!("{}{key}: missing in {}", self.prefix, self.name));
        read(&format!("{}{key}", self.prefix), self.fields.get(key).ok_or_else(missing)?)
    }

    fn optional<T>(&self, key: &str, read: impl Fn(&str, &Value) -> Result<T, Error>) -> Result<Option<T>, Error> {
        let found = self.fields.get(key).filter(|value| !value.is_null());
        found.map(|value| read(&format!("{}{key}", self.prefix), value)).transpose()
    }
}

fn wrong(path: &str, value: &Value, what: &str) -> Error {
    let mut shown = value.to_string();
    if shown.len() > 40 {
        shown = format!("{}...", shown.chars().take(37).collect::<String>());
    }
    Error::new(format!("{path}: {shown} is {what}"))
}

fn array<'a>(path: &str, value: &'a Value, max: usize, what: &str) -> Result<&'a Vec<Value>, Error> {
    match value.as_array() {
        None => Err(wrong(path, value, "no list [ ... ]")),
        Some(list) if list.is_empty() => Err(Error::new(format!("{path}: has no {what}, give at least one"))),
        Some(list) if list.len() > max => {
            Err(Error::new(format!("{path}: has {} {what}, more than {max}", list.len())))
        }
        Some(list) => Ok(list),
    }
}

fn number(path: &str, value: &Value, min: f64, max: f64, unit: &str) -> Result<f64, Error> {
    match value.as_f64() {
        Some(number) if (min..=max).contains(&number) => Ok(number),
        _ => Err(wrong(path, value, &format!("no number of {unit} from {min} to {max}"))),
    }
}

fn text(path: &str, value: &Value, max: usize) -> Result<String, Error> {
    match value.as_str() {
        Some(text) if (1..=max).contains(&text.len()) => Ok(text.to_owned()),
        _ => Err(wrong(path, value, &format!("no text of 1 to {max} characters"))),
    }
}

fn one_of<T: for<'de> Deserialize<'de>>(path: &str, value: &Value, words: &[&str]) -> Result<T, Error> {
    T::deserialize(value).map_err(|_| wrong(path, value, &format!("none of \"{}\"", words.join("\", \""))))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const EXAMPLE: &str = r#"{"seconds": 30, "users": [
        {"name": "camera", "direction": "up", "congestion": "reno", "sessions": [{"start": 0, "length": "endless"}]},
        {"direction": "down", "source": "10.0.0.9", "sessions": [
            {"start": 2.5, "length": 10000, "period": 10}, {"start": 4, "length": 500}]}]}"#;

    #[test]
    fn a_model_is_read_and_scheduled() {
        let model = Model::parse(EXAMPLE).unwrap();
        assert_eq!(model.connection, Connection::User);
        assert_eq!(model.users[1].name, "user2");
        let bytes = Length::Bytes;
        let expected = [(2.5, bytes(10000)), (4.0, bytes(500)), (12.5, bytes(10000)), (22.5, bytes(10000))];
        assert_eq!(model.users[1].schedule(30.0), expected);
        assert_eq!(model.users[0].schedule(30.0), [(0.0, Length::Endless)]);
    }

    #[test]
    fn errors_name_the_field() {
        let cases = [
            ("{", "not JSON: EOF while parsing an object at line 1 column 1"),
            ("[]", "the model: [] is no object { ... }"),
            (r#"{"seconds": 1}"#, "users: missing in the model"),
            (r#"{"users": [], "seconds": 1}"#, "users: has no users, give at least one"),
            (r#"{"sekonds": 1}"#, "sekonds: no such field, there are seconds, connection, users"),
            (r#"{"seconds": 1, "users": [7]}"#, "users[0]: 7 is no object { ... }"),
            (
                r#"{"seconds": 9, "users": [{"direction": "side", "sessions": []}]}"#,
                r#"users[0].direction: "side" is none of "down", "up""#,
            ),
            (
                r#"{"seconds": 9, "users": [{"direction": "up", "sessions": [{"start": 1, "length": -5}]}]}"#,
                "users[0].sessions[0].length: -5 is no number of bytes from 1 on, nor \"endless\"",
            ),
            (
                r#"{"seconds": 9, "users": [{"direction": "up", "sessions": [{"length": 5}]}]}"#,
                "users[0].sessions[0].start: missing in users[0].sessions[0]",
            ),
            (
                r#"{"seconds": 9, "users": [{"direction": "up", "sessions": [{"start": 9, "length": 5}]}]}"#,
                "users[0].sessions[0].start: 9 s is not before the end of the run, 9 s (`seconds`)",
            ),
            (
                r#"{"seconds": 9, "users": [{"direction": "up", "sessions": [{"start": 1, "length": 5, "period": 0}]}]}"#,
                "users[0].sessions[0].period: 0 is no number of seconds from 0.001 to 604800",
            ),
            (
                r#"{"seconds": 9, "users": [{"direction": "up", "source": "x", "sessions": [{"start": 1, "length": 5}]}]}"#,
                r#"users[0].source: "x" is no IP address"#,
            ),
            (
                r#"{"seconds": 600000, "users": [{"direction": "up", "sessions": [{"start": 1, "length": 5, "period": 0.1}]}]}"#,
                "users: 5999990 sessions in all are more than 100000",
            ),
        ];
        for (text, message) in cases {
            assert_eq!(Model::parse(text).unwrap_err().to_string(), message, "{text}");
        }
    }

    #[test]
    fn the_papers_models_are_half_persistent() {
        for nodes in [2, 4, 6, 8, 10] {
            let model = Model::of_paper(nodes, 10_000, 10.0, Direction::Down, 100.0);
            let endless = model.users.iter().filter(|u| u.sessions[0].length == Length::Endless).count();
            assert_eq!((model.users.len(), endless), (nodes, nodes / 2));
            let mut starts: Vec<_> = model.users[endless..].iter().map(|u| u.sessions[0].start.to_bits()).collect();
            starts.dedup();
            assert_eq!(starts.len(), nodes / 2, "start times are different");
            assert!(model.users[endless..].iter().all(|u| u.schedule(100.0).len() == 10));
        }
    }

    proptest! {
        #[test]
        fn what_is_printed_is_read_again(nodes in 1usize..20, length in 1u64..1_000_000, ms in 10u32..20_000) {
            let model = Model::of_paper(2 * nodes, length, f64::from(ms) / 1e3, Direction::Up, 21.0);
            prop_assert_eq!(Model::parse(&serde_json::to_string(&model).unwrap()).unwrap(), model);
        }

        #[test]
        fn nonsense_is_refused_in_one_line(text in ".{0,200}", cut in 0usize..400) {
            for text in [text, EXAMPLE[..cut.min(EXAMPLE.len())].to_owned()] {
                if let Err(e) = Model::parse(&text) {
                    prop_assert_eq!(e.to_string().lines().count(), 1);
                }
            }
        }
    }
}
