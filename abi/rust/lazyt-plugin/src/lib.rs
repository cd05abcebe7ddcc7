//! Backends for lazyt in safe Rust: ownership is in the types, so that a vendor's crate needs no `unsafe`.
//!
//! | contract of the headers | here |
//! |---|---|
//! | borrowed for the call | `&` |
//! | given | a value; `Drop` releases it |
//! | kept until the event is ready | [`Run`], which can be moved to another thread and completes the event |
//! | status | [`Result`], [`Error`] |
//! | `[any]` | `Sync` |
//! | nothing throws across the boundary (C-7) | a panic becomes INTERNAL |
//!
//! Implement [`Backend`] and [`Device`], then `export_plugin!(MyBackend);`; or begin with operators alone: [`interpreter`].
mod backend;
mod error;
mod event;
mod host;
pub mod interpreter;
mod program;
mod tables;

pub use backend::*;
pub use error::{Code, Error, Result};
pub use host::{log, option, thread_count, LogLevel, Memory};
pub use lazyt_sys as sys;
pub use program::*;

#[doc(hidden)]
pub use tables::entry;

/// Makes the library a lazyt plugin: exports its one symbol (LIB-1).
#[macro_export]
macro_rules! export_plugin {
    ($backend:ty) => {
        #[no_mangle]
        #[allow(unsafe_code)] // the symbol's name is promised to be ours alone
        pub extern "C" fn lazyt_plugin_entry_v1(
            host: *const $crate::sys::lazyt_host_t,
            out_plugin: *mut *const $crate::sys::lazyt_plugin_t,
        ) -> *mut $crate::sys::lazyt_status_t {
            $crate::entry::<$backend>(host, out_plugin)
        }
    };
}
