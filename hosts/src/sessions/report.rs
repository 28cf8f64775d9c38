// SPDX-License-Identifier: Apache-2.0
//! Computes fairness, throughput and a table from results.

use std::collections::BTreeMap;

use serde::Serialize;

use super::model::Direction;
use super::results::{Outcome, Run, Session};
use crate::bootstrap::{Interval, bootstrap, mean};
use crate::fairness::{at_most, fair_share, instantaneous_fairness, jain, jain_interval, ratio};
use hosts_base::Error;

/// Effective bandwidth rho B in bytes per second for each direction (section 4.1).
#[derive(Clone, Copy)]
pub struct Effective {
    pub down: Option<f64>,
    pub up: Option<f64>,
}

/// Fairness of one or more runs.
#[derive(Serialize)]
pub struct Fairness {
    pub runs: usize,
    pub nodes: usize,
    pub finished: usize,
    /// Sessions with a length that did not finish, or failed.
    pub unfinished: usize,
    /// IF over all finished sessions of all runs, with 95 % confidence.
    pub instantaneous_fairness: Option<Interval>,
    /// Upper bound of the index, had the unfinished sessions not been left out.
    pub at_most: Option<f64>,
    /// Jain's index of the users' throughput while they were sending: the mean of the runs, with 95 % confidence over runs,
    /// or over users if there is one run.
    pub jain: Option<Interval>,
    /// Throughput of all sessions in bit/s, over the length of the runs.
    pub throughput: f64,
    pub retransmits: u64,
}

/// Compute the indices. Errors: runs with different numbers of nodes, or a direction whose bandwidth is missing.
pub fn fairness(parts: &[(Run, Vec<Session>)], effective: Effective) -> Result<Fairness, Error> {
    let mut runs: BTreeMap<u64, (f64, Vec<&Session>)> = BTreeMap::new();
    let nodes = parts.first().map_or(0, |(run, _)| run.nodes);
    for (run, sessions) in parts {
        if run.nodes != nodes {
            let message =
                format!("runs with {nodes} and with {} nodes have no common fair share: give them apart", run.nodes);
            return Err(Error::new(message));
        }
        let (seconds, all) = runs.entry(run.started.to_bits()).or_default();
        *seconds = run.seconds.max(*seconds);
        all.extend(sessions);
    }
    let (mut finished, mut unfinished) = (Vec::new(), Vec::new());
    let sessions = || parts.iter().flat_map(|(_, sessions)| sessions);
    for session in sessions() {
        let Some(length) = session.length else { continue };
        let share = fair_share(bandwidth(session.direction, effective)?, nodes);
        match session.finish {
            Some(finish) => finished.push(ratio(length, finish, share)),
            None => unfinished.push(ratio(length, session.elapsed.max(1e-6), share)),
        }
    }
    let each: Vec<Vec<f64>> = runs.values().map(|(_, sessions)| rates(sessions)).collect();
    let of_runs: Vec<f64> = each.iter().filter_map(|rates| jain(rates)).collect();
    let seconds: f64 = runs.values().map(|(seconds, _)| seconds).sum();
    Ok(Fairness {
        runs: runs.len(),
        nodes,
        finished: finished.len(),
        unfinished: unfinished.len(),
        instantaneous_fairness: instantaneous_fairness(&finished),
        at_most: at_most(&finished, &unfinished),
        jain: match each.as_slice() {
            [rates] => jain_interval(rates),
            _ => bootstrap(&of_runs, mean),
        },
        throughput: 8.0 * sessions().map(|session| session.bytes).sum::<u64>() as f64 / seconds,
        retransmits: sessions().map(|session| session.retransmits).sum(),
    })
}

fn bandwidth(direction: Direction, effective: Effective) -> Result<f64, Error> {
    let (option, given) = match direction {
        Direction::Down => ("--down", effective.down),
        Direction::Up => ("--up", effective.up),
    };
    given.ok_or_else(|| {
        Error::new(format!("{option} RATE is missing: the effective bandwidth of sessions in that direction"))
    })
}

/// Compute the bytes per second of each user while one of its sessions was active.
fn rates(sessions: &[&Session]) -> Vec<f64> {
    type Spans = Vec<(f64, f64)>;
    let mut users: BTreeMap<&str, (u64, Spans)> = BTreeMap::new();
    for session in sessions.iter().filter(|session| session.outcome != Outcome::Failed) {
        let (bytes, spans) = users.entry(&session.user).or_default();
        *bytes += session.bytes;
        spans.push((session.start, session.start + session.elapsed));
    }
    users.into_values().map(|(bytes, spans)| bytes as f64 / covered(spans).max(1e-6)).collect()
}

/// Return the time that at least one of the spans covers.
fn covered(mut spans: Vec<(f64, f64)>) -> f64 {
    spans.sort_by(|a, b| a.0.total_cmp(&b.0));
    let (mut total, mut until) = (0.0, f64::NEG_INFINITY);
    for (start, end) in spans {
        total += (end - start.max(until)).max(0.0);
        until = end.max(until);
    }
    total
}

#[cfg(test)]
mod tests {
    use super::*;

    fn session(user: &str, start: f64, length: Option<u64>, finish: Option<f64>, elapsed: f64, bytes: u64) -> Session {
        Session {
            user: user.into(),
            session: 1,
            direction: Direction::Down,
            start,
            length,
            finish,
            elapsed,
            bytes,
            retransmits: 1,
            congestion: None,
            outcome: if finish.is_some() { Outcome::Finished } else { Outcome::Unfinished },
            error: None,
        }
    }

    fn run(started: f64) -> Run {
        Run { started, seconds: 10.0, nodes: 2, server: "10.0.0.1:8640".into() }
    }

    const DOWN: Effective = Effective { down: Some(200_000.0), up: None };

    #[test]
    fn the_index_of_two_sessions_and_a_starved_one() {
        // The fair share is 100 kB/s. Ideal, half as fast, and one that got nowhere in a second.
        let sessions = vec![
            session("a", 0.0, Some(100_000), Some(1.0), 1.0, 100_000),
            session("a", 2.0, Some(100_000), Some(2.0), 2.0, 100_000),
            session("a", 9.0, Some(10_000), None, 1.0, 0),
            session("b", 0.0, None, None, 10.0, 500_000),
        ];
        let found = fairness(&[(run(1.0), sessions)], DOWN).unwrap();
        assert_eq!((found.runs, found.nodes, found.finished, found.unfinished), (1, 2, 2, 1));
        assert!((found.instantaneous_fairness.unwrap().value - 0.75).abs() < 1e-12);
        assert!((found.at_most.unwrap() - (1.0 + 0.5 + 0.1) / 3.0).abs() < 1e-12);
        // a: 200 kB in 4 s, b: 500 kB in 10 s.
        assert!((found.jain.unwrap().value - 1.0).abs() < 1e-9);
        assert!((found.throughput - 8.0 * 70_000.0).abs() < 1e-6);
        assert_eq!(found.retransmits, 4);
    }

    #[test]
    fn files_with_one_start_are_one_run() {
        let part = |user: &str, bytes| vec![session(user, 0.0, None, None, 10.0, bytes)];
        let parts = [(run(1.0), part("a", 1000)), (run(1.0), part("b", 0))];
        let found = fairness(&parts, DOWN).unwrap();
        assert_eq!(found.runs, 1);
        assert!((found.jain.unwrap().value - 0.5).abs() < 1e-12);
        let repeats = [(run(1.0), part("a", 1000)), (run(2.0), part("a", 0))];
        let found = fairness(&repeats, DOWN).unwrap();
        assert_eq!((found.runs, found.jain.unwrap().value), (2, 1.0));
    }

    #[test]
    fn what_is_missing_is_named() {
        let mut up = session("a", 0.0, Some(1), Some(1.0), 1.0, 1);
        up.direction = Direction::Up;
        let error = fairness(&[(run(1.0), vec![up])], DOWN).err().unwrap();
        assert!(error.to_string().starts_with("--up RATE is missing"));
        let other = Run { nodes: 4, ..run(2.0) };
        assert!(fairness(&[(run(1.0), vec![]), (other, vec![])], DOWN).is_err());
    }

    #[test]
    fn overlapping_sessions_count_their_time_once() {
        assert_eq!(covered(vec![(2.0, 3.0), (0.0, 1.5), (1.0, 2.0), (2.5, 2.6)]), 3.0);
    }
}
