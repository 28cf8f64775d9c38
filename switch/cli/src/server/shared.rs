// SPDX-License-Identifier: Apache-2.0
//! The device with its locks, which RPCs and streams share.

use std::sync::Arc;

use apswitch_p4runtime::device::{Device, State};
use apswitch_p4runtime::error::{self, batch_status};
use apswitch_p4runtime::proto::p4::v1 as p4;
use tokio::sync::{Mutex, RwLock, Semaphore};
use tonic::Status;

/// KiB of pipelines that are being sent to clients.
pub const MAX_ANSWER_KIB: usize = 64 << 10;

/// The device, and whose turn it is.
pub struct Shared {
    pub device: Device,
    /// Writes exclude each other and reads.
    pub state: Arc<RwLock<State>>,
    /// Held while a pipeline is made ready: one at a time, and in the order in which they came.
    pipelines: Mutex<()>,
    pub answers: Arc<Semaphore>,
}

impl Shared {
    pub fn new(device: Device) -> Shared {
        let answers = Arc::new(Semaphore::new(MAX_ANSWER_KIB));
        Shared { device, state: Arc::default(), pipelines: Mutex::default(), answers }
    }

    pub async fn write(&self, request: p4::WriteRequest) -> Result<(), error::Status> {
        self.device.check_write(&request)?;
        let outcomes = self.device.write(&mut *self.state.write().await, request).await?;
        batch_status("Write", &outcomes)
    }

    pub async fn set_config(&self, mut request: p4::SetForwardingPipelineConfigRequest) -> Result<(), error::Status> {
        self.device.check_push(&request)?;
        let _turn = self.pipelines.lock().await;
        let ready = self.device.make_ready(&mut request).await?;
        self.device.set_config(&mut *self.state.write().await, &request, ready).await
    }
}

/// A status as gRPC sends it.
pub fn grpc_status(error::Status { code, message, details }: error::Status) -> Status {
    Status::with_details((code as i32).into(), message, details)
}
