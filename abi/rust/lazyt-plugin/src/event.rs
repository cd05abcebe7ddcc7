//! A complete implementation of event.h.
use std::ffi::c_void;
use std::sync::{Arc, Condvar, Mutex, MutexGuard};
use std::time::Duration;

use lazyt_sys::*;

use crate::error::{Code, Error, Result};
use crate::host;

/// An outcome as the host sees it; null is OK.
struct Status(*mut lazyt_status_t);
// SAFETY: statuses are counted by the host, whose functions are [any].
unsafe impl Send for Status {}

struct Callback(lazyt_event_callback_t, *mut c_void);
// SAFETY: on_ready says that it may be called on any thread (EVT-4).
unsafe impl Send for Callback {}

#[derive(Default)]
struct State {
    outcome: Option<Status>,
    callbacks: Vec<Callback>,
}

/// Completed once, by any thread. A handle of the host's is a strong count of the Arc.
#[derive(Default)]
pub(crate) struct Event {
    state: Mutex<State>,
    ready: Condvar,
}

impl Event {
    pub fn handle(self: Arc<Self>) -> *mut lazyt_event_t {
        Arc::into_raw(self).cast_mut().cast()
    }
    /// # Safety
    /// `handle` is alive (C-13), and one of ours.
    pub unsafe fn of(handle: *mut lazyt_event_t) -> Arc<Self> {
        let raw: *const Event = handle.cast();
        Arc::increment_strong_count(raw);
        Arc::from_raw(raw)
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
    }

    /// Makes it ready; only the first call counts (EVT-1).
    pub fn complete(&self, outcome: Result<()>) {
        let status = outcome.map_or_else(Error::into_status, |()| std::ptr::null_mut());
        let mut state = self.lock();
        if state.outcome.is_some() {
            drop(state);
            // SAFETY: it was ours.
            unsafe { host::status_table().release.unwrap()(status) };
            return;
        }
        state.outcome = Some(Status(status));
        let callbacks = std::mem::take(&mut state.callbacks);
        drop(state);
        self.ready.notify_all();
        for Callback(call, user_data) in callbacks {
            // SAFETY: the event, and so its status, lives until we return.
            unsafe { call.unwrap()(user_data, status) };
        }
    }

    pub fn is_ready(&self) -> bool {
        self.lock().outcome.is_some()
    }

    /// The event's status (given), or DEADLINE_EXCEEDED (EVT-3).
    fn wait(&self, timeout_ns: u64) -> *mut lazyt_status_t {
        let mut state = self.lock();
        if timeout_ns == LAZYT_WAIT_FOREVER {
            state = self.ready.wait_while(state, |s| s.outcome.is_none()).unwrap_or_else(|e| e.into_inner());
        } else {
            let limit = Duration::from_nanos(timeout_ns);
            let waited = self.ready.wait_timeout_while(state, limit, |s| s.outcome.is_none());
            state = waited.unwrap_or_else(|e| e.into_inner()).0;
        }
        match &state.outcome {
            None => Error::new(Code::DeadlineExceeded, "the event is not ready yet").into_status(),
            Some(Status(status)) if status.is_null() => *status,
            // SAFETY: the event holds a reference.
            Some(Status(status)) => unsafe { host::status_table().retain.unwrap()(*status) },
        }
    }

    pub fn outcome(&self) -> Result<()> {
        Error::from_status(self.wait(LAZYT_WAIT_FOREVER))
    }

    fn on_ready(&self, call: lazyt_event_callback_t, user_data: *mut c_void) {
        let mut state = self.lock();
        let Some(Status(status)) = state.outcome else {
            state.callbacks.push(Callback(call, user_data));
            return;
        };
        drop(state);
        // SAFETY: the host calls with a reference, which keeps the status.
        unsafe { call.unwrap()(user_data, status) };
    }
}

impl Drop for Event {
    fn drop(&mut self) {
        if let Some(Status(status)) = self.lock().outcome.take() {
            // SAFETY: the event's own reference; NULL is allowed.
            unsafe { host::status_table().release.unwrap()(status) };
        }
    }
}

// SAFETY of all below: the host passes handles that it holds (C-13).
unsafe extern "C" fn ready(event: *mut lazyt_event_t, out_ready: *mut u32) -> *mut lazyt_status_t {
    *out_ready = Event::of(event).is_ready() as u32;
    std::ptr::null_mut()
}
unsafe extern "C" fn wait(event: *mut lazyt_event_t, timeout_ns: u64) -> *mut lazyt_status_t {
    Event::of(event).wait(timeout_ns)
}
unsafe extern "C" fn on_ready(
    event: *mut lazyt_event_t,
    callback: lazyt_event_callback_t,
    user_data: *mut c_void,
) -> *mut lazyt_status_t {
    Event::of(event).on_ready(callback, user_data);
    std::ptr::null_mut()
}
unsafe extern "C" fn retain(event: *mut lazyt_event_t) {
    Arc::increment_strong_count(event.cast::<Event>().cast_const());
}
unsafe extern "C" fn release(event: *mut lazyt_event_t) {
    if !event.is_null() {
        Arc::decrement_strong_count(event.cast::<Event>().cast_const());
    }
}

pub(crate) const TABLE: lazyt_plugin_event_t = lazyt_plugin_event_t {
    struct_size: std::mem::size_of::<lazyt_plugin_event_t>() as u64,
    next: std::ptr::null(),
    ready: Some(ready),
    wait: Some(wait),
    on_ready: Some(on_ready),
    retain: Some(retain),
    release: Some(release),
};
