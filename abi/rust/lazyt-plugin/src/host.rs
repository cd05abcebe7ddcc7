//! What the host offers.
use std::sync::atomic::{AtomicPtr, Ordering};

use lazyt_sys::*;

use crate::error::{bytes, to_c, Error, Result};

static HOST: AtomicPtr<lazyt_host_t> = AtomicPtr::new(std::ptr::null_mut());

/// # Safety
/// `host` is what the entry was called with: static while the plugin is loaded.
pub(crate) unsafe fn adopt(host: *const lazyt_host_t) -> Result<()> {
    HOST.store(host.cast_mut(), Ordering::Release);
    if (*host).abi_major != LAZYT_ABI_MAJOR || (*host).abi_draft != LAZYT_ABI_DRAFT {
        return Err(Error::new(
            crate::Code::FailedPrecondition,
            "plugin and host are built from headers of different ABI drafts: rebuild the older one",
        ));
    }
    Ok(())
}

fn host() -> &'static lazyt_host_t {
    // SAFETY: nothing else of this crate runs before the entry, and the table is static.
    unsafe { &*HOST.load(Ordering::Acquire) }
}
pub(crate) fn status_table() -> &'static lazyt_host_status_t {
    // SAFETY: static, as above.
    unsafe { &*host().status }
}
fn services() -> &'static lazyt_host_services_t {
    // SAFETY: static, as above.
    unsafe { &*host().services }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
#[repr(i32)]
pub enum LogLevel {
    Trace = LAZYT_LOG_TRACE,
    Debug = LAZYT_LOG_DEBUG,
    Info = LAZYT_LOG_INFO,
    Warning = LAZYT_LOG_WARNING,
    Error = LAZYT_LOG_ERROR,
}

pub fn log(level: LogLevel, message: &str) {
    // SAFETY: [any]; the message is borrowed for the call.
    unsafe { services().log.unwrap()(level as lazyt_log_level_t, to_c(message)) }
}

/// Threads that the user allows for compute on the calling thread.
pub fn thread_count() -> u32 {
    // SAFETY: [any].
    unsafe { services().thread_count.unwrap()() }
}

/// The value of LAZYT_<PLUGIN>_<NAME>; empty when it is not set.
pub fn option(plugin: &str, name: &str) -> Result<&'static str> {
    let mut value = to_c("");
    // SAFETY: [any]; the value is static.
    unsafe {
        Error::from_status(services().option.unwrap()(to_c(plugin), to_c(name), &mut value))?;
        std::str::from_utf8(bytes(value.data.cast(), value.size)).map_err(|_| Error::invalid(format!("{name}: not UTF-8")))
    }
}

/// Memory of the host, zeroed: it counts it and may refuse it (STA-5). Freed when dropped.
pub struct Memory {
    data: *mut u8,
    size: usize,
}
// SAFETY: it owns its bytes.
unsafe impl Send for Memory {}
unsafe impl Sync for Memory {}

impl Memory {
    /// alignment: a power of two.
    pub fn new(size: usize, alignment: usize) -> Result<Self> {
        // SAFETY: [any]; what it gives has `size` bytes.
        let data: *mut u8 = unsafe { services().alloc.unwrap()(size as u64, alignment as u64) }.cast();
        if data.is_null() {
            return Err(Error::out_of_memory());
        }
        unsafe { data.write_bytes(0, size) };
        Ok(Memory { data, size })
    }
    /// For the host, which reads and writes by the contract's rules.
    pub fn as_ptr(&self) -> *mut u8 {
        self.data
    }
}

impl std::ops::Deref for Memory {
    type Target = [u8];
    fn deref(&self) -> &[u8] {
        // SAFETY: size bytes, initialised by new.
        unsafe { std::slice::from_raw_parts(self.data, self.size) }
    }
}
impl std::ops::DerefMut for Memory {
    fn deref_mut(&mut self) -> &mut [u8] {
        // SAFETY: as above, and &mut self is alone.
        unsafe { std::slice::from_raw_parts_mut(self.data, self.size) }
    }
}
impl Drop for Memory {
    fn drop(&mut self) {
        // SAFETY: it came from alloc.
        unsafe { services().free.unwrap()(self.data.cast()) }
    }
}
