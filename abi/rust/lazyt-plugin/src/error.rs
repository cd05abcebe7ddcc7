//! Errors inside, statuses at the edge (C-7).
use std::panic::{catch_unwind, AssertUnwindSafe};

use lazyt_sys::*;

use crate::host;

/// gRPC's codes; those that plugins give. Others of a later minor are kept as they are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Code {
    InvalidArgument,
    DeadlineExceeded,
    NotFound,
    ResourceExhausted,
    FailedPrecondition,
    OutOfRange,
    Unimplemented,
    Internal,
    Unavailable,
    DataLoss,
    Other(i32),
}

const CODES: [(Code, lazyt_code_t); 10] = [
    (Code::InvalidArgument, LAZYT_CODE_INVALID_ARGUMENT),
    (Code::DeadlineExceeded, LAZYT_CODE_DEADLINE_EXCEEDED),
    (Code::NotFound, LAZYT_CODE_NOT_FOUND),
    (Code::ResourceExhausted, LAZYT_CODE_RESOURCE_EXHAUSTED),
    (Code::FailedPrecondition, LAZYT_CODE_FAILED_PRECONDITION),
    (Code::OutOfRange, LAZYT_CODE_OUT_OF_RANGE),
    (Code::Unimplemented, LAZYT_CODE_UNIMPLEMENTED),
    (Code::Internal, LAZYT_CODE_INTERNAL),
    (Code::Unavailable, LAZYT_CODE_UNAVAILABLE),
    (Code::DataLoss, LAZYT_CODE_DATA_LOSS),
];

/// What failed, for people, and what it passed through on its way up.
#[derive(Clone, Debug)]
pub struct Error {
    pub code: Code,
    pub message: String,
    pub notes: Vec<(String, String)>,
}

pub type Result<T, E = Error> = std::result::Result<T, E>;

impl Error {
    pub fn new(code: Code, message: impl Into<String>) -> Self {
        Error { code, message: message.into(), notes: Vec::new() }
    }
    pub fn invalid(message: impl Into<String>) -> Self {
        Error::new(Code::InvalidArgument, message)
    }
    pub fn out_of_memory() -> Self {
        Error::new(Code::ResourceExhausted, "memory is exhausted")
    }
    /// Says where the error passed through, innermost first.
    pub fn note(mut self, place: impl Into<String>, detail: impl Into<String>) -> Self {
        self.notes.push((place.into(), detail.into()));
        self
    }

    /// A status of the host, given to the caller.
    pub(crate) fn into_status(self) -> *mut lazyt_status_t {
        let number = match self.code {
            Code::Other(number) => number,
            code => CODES.iter().find(|c| c.0 == code).map_or(LAZYT_CODE_UNKNOWN, |c| c.1),
        };
        let table = host::status_table();
        // SAFETY: the host's functions are [any]; strings are borrowed for the call.
        unsafe {
            let status = table.create.unwrap()(number, to_c(&self.message));
            for (place, detail) in &self.notes {
                table.annotate.unwrap()(status, to_c(place), to_c(detail));
            }
            status
        }
    }

    /// Takes a status (given) over; null is OK.
    pub(crate) fn from_status(status: *mut lazyt_status_t) -> Result<()> {
        if status.is_null() {
            return Ok(());
        }
        let table = host::status_table();
        // SAFETY: status is ours until its release below; the texts are copied before.
        unsafe {
            let number = table.code.unwrap()(status);
            let code = CODES.iter().find(|c| c.1 == number).map_or(Code::Other(number), |c| c.0);
            let mut error = Error::new(code, from_c(table.message.unwrap()(status)));
            for i in 0..table.note_count.unwrap()(status) {
                let (mut place, mut detail) = (to_c(""), to_c(""));
                table.note.unwrap()(status, i, &mut place, &mut detail);
                error = error.note(from_c(place), from_c(detail));
            }
            table.release.unwrap()(status);
            Err(error)
        }
    }
}

impl std::fmt::Display for Error {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.message)
    }
}
impl std::error::Error for Error {}

/// Borrows the characters of `s`.
pub(crate) fn to_c(s: &str) -> lazyt_string_t {
    lazyt_string_t { data: s.as_ptr().cast(), size: s.len() as u64 }
}

/// # Safety
/// `s` is a string of the ABI (C-4) that is alive.
pub(crate) unsafe fn from_c(s: lazyt_string_t) -> String {
    String::from_utf8_lossy(bytes(s.data.cast(), s.size)).into_owned()
}

/// # Safety
/// `data` points at `size` bytes that live as long as the result is used, or size is 0.
pub(crate) unsafe fn bytes<'a, T>(data: *const T, size: u64) -> &'a [T] {
    if size == 0 {
        &[]
    } else {
        std::slice::from_raw_parts(data, size as usize)
    }
}

/// Runs f; errors and panics become a status.
pub(crate) fn guard(f: impl FnOnce() -> Result<()>) -> *mut lazyt_status_t {
    match caught(f) {
        Ok(()) => std::ptr::null_mut(),
        Err(error) => error.into_status(),
    }
}

pub(crate) fn caught<T>(f: impl FnOnce() -> Result<T>) -> Result<T> {
    catch_unwind(AssertUnwindSafe(f)).unwrap_or_else(|panic| {
        let said = panic.downcast_ref::<String>().map(String::as_str);
        let said = said.or_else(|| panic.downcast_ref::<&str>().copied()).unwrap_or("no message");
        Err(Error::new(Code::Internal, format!("the plugin panicked: {said}")))
    })
}
