// SPDX-License-Identifier: Apache-2.0
//! Writing: updates on their own or all together, and programs, which are made ready beside the running one.

use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

use apswitch_core::dataplane_ops::Change;
use apswitch_core::machine::Machine;
use apswitch_core::state::Shared;
use apswitch_core::store::{self, MovedCounts, PipelineScope, Store};
use futures_channel::oneshot;

use super::{Dataplane, Inner, Program, Update, UpdateError, check_program};
use crate::block_on;
use crate::engine_messages::Command;

/// Updates that packets can see all at once; more would hold packets up.
const MAX_UPDATES_AT_ONCE: usize = 8192;

/// A program that was made ready to run.
pub struct Prepared(Stage);

/// Program that was made ready, with what was written to it.
pub struct Stage {
    pub store: Store,
    machine: Box<Machine>,
    moved_counts: Vec<MovedCounts>,
    /// Program that it shares counters and registers with.
    shares_with: Option<Arc<Program>>,
}

impl Stage {
    /// Applies changes to the machine; everything else is made anew from the store when the program is committed.
    fn apply(&mut self, changes: Vec<Change>, now: u64) {
        for mut change in changes {
            self.machine.apply(&mut change, now);
        }
    }
}

/// Says when changes are in effect, and what is left of them; `None`: they are.
type Ended = Option<oneshot::Receiver<Vec<Change>>>;
type Replaced = oneshot::Receiver<Option<Box<Machine>>>;

impl Dataplane {
    /// Replaces the pipeline. All entries, groups, sessions and counters start anew; queued packets are dropped.
    /// Returns when the new program processes packets.
    pub async fn commit(&self, program: Program) -> Result<(), UpdateError> {
        self.commit_prepared(self.prepare(program)?).await
    }

    /// Commits as [`Dataplane::commit`] does, for callers without an async runtime.
    pub fn commit_blocking(&self, program: Program) -> Result<(), UpdateError> {
        block_on(self.commit(program))
    }

    /// Makes a program ready, which takes its time, and nobody waits for that.
    pub fn prepare(&self, program: Program) -> Result<Prepared, UpdateError> {
        self.inner.make_stage(program, None).map(Prepared)
    }

    /// Makes a program ready for [`Dataplane::reconcile_prepared`]: its counters and registers are those of the running
    /// program.
    pub fn prepare_to_reconcile(&self, program: Program) -> Result<Prepared, UpdateError> {
        let shares = self.inner.store().as_ref().map(|store| (store.program.clone(), store.shared.clone()));
        self.inner.make_stage(program, shares).map(Prepared)
    }

    /// Returns a handle that writes to and reads from the program that was made ready. It replaces one
    /// that waits already.
    pub fn stage_prepared(&self, Prepared(stage): Prepared) -> Dataplane {
        let before = self.inner.stage().replace(stage);
        self.inner.free(before);
        Dataplane { staged: true, ..self.clone() }
    }

    /// Makes a program ready, and stages it as [`Dataplane::stage_prepared`] does.
    pub fn stage(&self, program: Program) -> Result<Dataplane, UpdateError> {
        Ok(self.stage_prepared(self.prepare(program)?))
    }

    /// Frees a program that was made ready and is not wanted.
    pub fn discard(&self, prepared: Prepared) {
        self.inner.free(Some(prepared));
    }

    /// Forgets the program that waits.
    pub fn unstage(&self) {
        let stage = self.inner.stage().take();
        self.inner.free(stage);
    }

    /// Replaces the pipeline by the one that waits, with what was written to it.
    pub async fn commit_staged(&self) -> Result<(), UpdateError> {
        let stage = self.inner.stage().take();
        let stage = stage.ok_or_else(|| UpdateError::FailedPrecondition("no program waits to be committed".into()))?;
        self.commit_prepared(Prepared(stage)).await
    }

    /// Commits, as [`Dataplane::commit`] does, a program that was made ready.
    pub async fn commit_prepared(&self, prepared: Prepared) -> Result<(), UpdateError> {
        let Prepared(stage) = prepared;
        let (old, answer) = {
            let mut store = self.inner.store();
            self.check_bound(store.as_ref())?;
            self.inner.replace(&mut store, stage)
        };
        self.inner.free(old);
        self.inner.free(answer.await.map_err(|_| UpdateError::Stopped)?);
        Ok(())
    }

    /// Replaces the pipeline by one that was made ready for it and keeps what was written to the old one, or refuses, also
    /// when another one was committed meanwhile. No packet meets a state between the two; queued packets are dropped, and
    /// meters start with full buckets.
    pub async fn reconcile_prepared(&self, Prepared(mut stage): Prepared) -> Result<(), UpdateError> {
        let dataplane = self.clone();
        let begin = move || {
            let now = dataplane.inner.clock.now();
            // Held from the copy on: what is written later has to be written to the new program.
            let mut store = dataplane.inner.store();
            check_program(stage.shares_with.take().as_ref(), store.as_ref())?;
            if let Some(old) = store.as_ref() {
                let mut changes = Vec::new();
                stage.moved_counts = stage.store.reconcile(old, now, &mut changes)?;
                stage.apply(changes, now);
            }
            let (old, answer) = dataplane.inner.replace(&mut store, stage);
            drop(store);
            dataplane.inner.free(old);
            Ok::<Replaced, UpdateError>(answer)
        };
        // Everything is copied, which may take a while.
        let answer = self.aside(begin).await??;
        self.inner.free(answer.await.map_err(|_| UpdateError::Stopped)?);
        Ok(())
    }

    /// Applies the updates in order, each on its own; one result for each. Returns when all are in effect.
    pub async fn write(&self, updates: Vec<Update>) -> Vec<Result<(), UpdateError>> {
        let number = updates.len();
        let mut changes = Vec::with_capacity(number);
        let written = self.change(false, |store, now| {
            let results = updates.into_iter().map(|update| store.update(update, now, &mut changes)).collect();
            (results, changes)
        });
        let (results, ended): (Vec<Result<(), UpdateError>>, Ended) = match written {
            Ok(written) => written,
            Err(error) => return vec![Err(error); number],
        };
        let applied = match ended {
            Some(ended) => ended.await.is_ok(),
            None => true,
        };
        if applied { results } else { results.into_iter().map(|r| r.and(Err(UpdateError::Stopped))).collect() }
    }

    /// Writes as [`Dataplane::write`] does, for callers without an async runtime.
    pub fn write_blocking(&self, updates: Vec<Update>) -> Vec<Result<(), UpdateError>> {
        block_on(self.write(updates))
    }

    /// Applies all updates, or none when one is refused, which is named by its place. `undo` grows by what takes them
    /// back, to be reversed. With `at_once` each packet meets all of them in each of its passes, or none.
    pub async fn write_all(
        &self,
        updates: Vec<Update>,
        at_once: bool,
        undo: &mut Vec<Update>,
    ) -> Result<(), (usize, UpdateError)> {
        let before = undo.len();
        let written = self.change(at_once, |store, now| {
            let mut changes = Vec::with_capacity(updates.len());
            for (place, update) in updates.into_iter().enumerate() {
                let made = store.inverse(&update, now).and_then(|inverse| {
                    store.update(update, now, &mut changes)?;
                    undo.extend(inverse);
                    Ok(())
                });
                if let Err(error) = made {
                    // Nobody has heard of the changes: the store alone has to be as it was.
                    changes.clear();
                    for update in undo.drain(before..).rev() {
                        if let Err(error) = store.update(update, now, &mut changes) {
                            tracing::error!("rollback of an update failed: {error}");
                        }
                    }
                    return (Err((place, error)), Vec::new());
                }
            }
            (Ok(()), changes)
        });
        let (result, ended) = written.map_err(|error| (0, error))?;
        result?;
        match ended {
            Some(ended) => ended.await.map(drop).map_err(|_| (0, UpdateError::Stopped)),
            None => Ok(()),
        }
    }

    /// Takes back what [`Dataplane::write_all`] has done.
    pub async fn undo(&self, mut updates: Vec<Update>) {
        updates.reverse();
        for error in self.write(updates).await.into_iter().filter_map(Result::err) {
            tracing::error!("rollback of an update failed: {error}");
        }
    }

    /// Returns why packets cannot meet all of the updates at once, if so.
    pub fn check_at_once(&self, updates: &[Update]) -> Result<(), String> {
        if updates.len() > MAX_UPDATES_AT_ONCE {
            return Err(format!("{} updates cannot take effect at once: {MAX_UPDATES_AT_ONCE} can", updates.len()));
        }
        let scope = self.read(|store| {
            let scope = |all: PipelineScope, update| all.and(PipelineScope::of(update, &store.program));
            Ok(updates.iter().fold(PipelineScope::Nowhere, scope))
        });
        match scope {
            Ok(PipelineScope::Both) if updates.len() > 1 => {
                Err("the updates reach into ingress and egress, between which packets wait in queues".into())
            }
            _ => Ok(()),
        }
    }

    /// Lets `work` change the store and sends what it answers on its way.
    fn change<T>(
        &self,
        at_once: bool,
        work: impl FnOnce(&mut Store, u64) -> (T, Vec<Change>),
    ) -> Result<(T, Ended), UpdateError> {
        if self.staged {
            let mut stage = self.inner.stage();
            let stage = stage.as_mut().ok_or(UpdateError::NoProgram)?;
            let now = self.inner.clock.now();
            let (result, changes) = work(&mut stage.store, now);
            stage.apply(changes, now);
            return Ok((result, None));
        }
        // Held until the changes are on their way: they arrive in the order of the store.
        let mut store = self.inner.store();
        self.check_bound(store.as_ref())?;
        let (result, changes) = work(store.as_mut().ok_or(UpdateError::NoProgram)?, self.inner.clock.now());
        self.inner.writes.fetch_add(1, Relaxed);
        let (number, quiet) = (changes.len(), changes.iter().all(Change::is_for_packets_only));
        let (done, ended) = oneshot::channel();
        let command = Command::Changes { changes, at_once, done };
        let in_effect = if quiet {
            self.inner.commands.leave(command, number)
        } else {
            self.inner.commands.send(command);
            false
        };
        Ok((result, (!in_effect).then_some(ended)))
    }
}

impl Inner {
    /// `running`: what counts and registers are shared with.
    fn make_stage(&self, program: Program, running: Option<(Arc<Program>, Arc<Shared>)>) -> Result<Stage, UpdateError> {
        store::check_size(&program)?;
        let now = self.clock.now();
        let program = Arc::new(program);
        let mut shared = Shared::new(&program);
        let shares_with = running.map(|(old, counted)| {
            store::share(&old, &counted, &program, &mut shared);
            old
        });
        let shared = Arc::new(shared);
        let machine = Box::new(Machine::new(&program, shared.clone(), self.seed));
        let (store, changes) = Store::new(program, shared)?;
        let mut stage = Stage { store, machine, moved_counts: Vec::new(), shares_with };
        stage.apply(changes, now);
        Ok(stage)
    }

    /// Puts the program that was made ready into the place of `store`'s.
    fn replace(&self, store: &mut Option<Store>, mut stage: Stage) -> (Option<Store>, Replaced) {
        let mut changes = Vec::new();
        for port in self.ports() {
            stage.store.set_port(port.number, port.up.load(Relaxed), &mut changes);
        }
        stage.apply(changes, self.clock.now());
        let changes = stage.store.beside_the_machine();
        let (done, answer) = oneshot::channel();
        let old = store.replace(stage.store);
        self.writes.fetch_add(1, Relaxed);
        self.commands.send(Command::Commit { machine: stage.machine, changes, moved_counts: stage.moved_counts, done });
        (old, answer)
    }
}
