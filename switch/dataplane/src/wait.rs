// SPDX-License-Identifier: Apache-2.0
//! Waiting for a future on a thread without an async runtime.

use std::pin::pin;
use std::sync::Arc;
use std::task::{Context, Poll, Wake, Waker};
use std::thread::{self, Thread};

struct Unpark(Thread);

impl Wake for Unpark {
    fn wake(self: Arc<Unpark>) {
        self.0.unpark();
    }
}

/// Returns what the future does, while this thread sleeps.
pub fn block_on<T>(future: impl Future<Output = T>) -> T {
    let mut future = pin!(future);
    let waker = Waker::from(Arc::new(Unpark(thread::current())));
    let mut context = Context::from_waker(&waker);
    loop {
        match future.as_mut().poll(&mut context) {
            Poll::Ready(answer) => return answer,
            Poll::Pending => thread::park(),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use futures_channel::oneshot;

    use super::*;

    #[test]
    fn block_on_a_late_answer_returns_it() {
        let (done, answer) = oneshot::channel();
        let other = thread::spawn(move || {
            thread::sleep(Duration::from_millis(20));
            done.send(7)
        });
        assert_eq!(block_on(answer), Ok(7));
        assert_eq!(other.join().unwrap(), Ok(()));
    }
}
