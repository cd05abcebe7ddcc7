//! What a vendor implements. Methods may be called on any thread and concurrently, unless they say otherwise.
use std::sync::Arc;

use lazyt_sys::*;

use crate::error::{Error, Result};
use crate::event::Event;
use crate::program::{Node, Program};

/// The plugin as a whole.
pub trait Backend: 'static {
    type Device: Device;
    /// As in the manifest and in LAZYT_BACKEND (LIB-8).
    const NAME: &'static str;
    const VERSION: &'static str;
    const DESCRIPTION: &'static str;
    const VENDOR: &'static str;
    /// Preference when the user names no backend; below 0: taken by name only.
    const SCORE: i32;

    /// Once before, and once after all others.
    fn init() -> Result<()> {
        Ok(())
    }
    fn shutdown() {}
    fn device_count() -> Result<u32>;
    /// Why there is no device.
    fn why_none() -> &'static str {
        ""
    }
    /// index is below device_count. Does not initialise the device (DEV-1).
    fn describe(index: u32) -> Result<DeviceInfo>;
    fn open(index: u32) -> Result<Self::Device>;
}

#[derive(Clone, Copy, Debug, Default)]
pub struct DeviceInfo {
    pub name: &'static str,
    pub vendor: &'static str,
    /// The CPU reads and writes buffers at `Buffer::host_pointer`.
    pub host_visible: bool,
    /// 0 = not known.
    pub total_bytes: u64,
    /// Of buffers; a power of two.
    pub alignment: u64,
}

#[derive(Clone, Copy, Debug, Default)]
pub struct MemoryStats {
    pub bytes_in_use: u64,
    pub peak_bytes_in_use: u64,
    pub bytes_reserved: u64,
    pub derived_bytes: u64,
}

#[derive(Clone, Copy, Debug)]
pub struct BufferDesc {
    pub size: u64,
    /// 0 = the device's own.
    pub alignment: u64,
    pub memory_space: u32,
}

/// An open device. Dropped when the host closes it, after all that was made on it.
pub trait Device: Send + Sync + 'static {
    type Buffer: Buffer;
    type Executable: Executable<Buffer = Self::Buffer>;

    fn memory_stats(&self) -> MemoryStats;
    /// What the device does not have is an error (BUF-12); contents are undefined.
    fn alloc(&self, desc: BufferDesc) -> Result<Self::Buffer>;
    /// The same program, the same answers (CAP-1). One call at a time.
    fn query(&self, program: Program<'_>) -> Vec<Answer> {
        program.nodes().map(|node| self.answer(program, node)).collect()
    }
    fn answer(&self, program: Program<'_>, node: Node<'_>) -> Answer;
    fn compile(&self, program: Program<'_>, flags: u64) -> Result<Self::Executable>;
    /// Frees derived forms and cached memory.
    fn trim(&self) -> Result<()> {
        Ok(())
    }
}

#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum Answer {
    /// group: 0 = none (CAP-4); cost_ns: 0 = not known.
    Take { group: u32, cost_ns: u64 },
    /// Taken if the attributes hold values, not host scalars.
    TakeConstantArgs,
    Refuse { reason: Reason, why: String },
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
#[repr(i32)]
pub enum Reason {
    UnknownOperator = LAZYT_REASON_UNKNOWN_OPERATOR,
    DType = LAZYT_REASON_DTYPE,
    Rank = LAZYT_REASON_RANK,
    Argument = LAZYT_REASON_ARGUMENT,
    Layout = LAZYT_REASON_LAYOUT,
    Size = LAZYT_REASON_SIZE,
    SymbolicDim = LAZYT_REASON_SYMBOLIC_DIM,
    Disabled = LAZYT_REASON_DISABLED,
    Cost = LAZYT_REASON_COST,
}

/// Bytes on a device. The host orders reads and writes by events; what overlaps nevertheless is its mistake, and must
/// not be undefined: lock.
pub trait Buffer: Send + Sync + 'static {
    fn size(&self) -> u64;
    /// offset + dst.len() is not above size.
    fn read(&self, offset: u64, dst: &mut [u8]) -> Result<()>;
    /// offset + src.len() is not above size.
    fn write(&self, offset: u64, src: &[u8]) -> Result<()>;
    /// Of host-visible devices.
    fn host_pointer(&self) -> Option<*mut u8> {
        None
    }
    fn copy_from(&self, offset: u64, src: &Self, src_offset: u64, size: u64) -> Result<()> {
        let mut bytes = vec![0; size as usize];
        src.read(src_offset, &mut bytes)?;
        self.write(offset, &bytes)
    }
}

#[derive(Clone, Copy, Debug, Default)]
pub struct OutputMeta {
    pub size: u64,
    pub alignment: u64,
    pub memory_space: u32,
    pub opaque: bool,
}

#[derive(Clone, Copy, Debug, Default)]
pub struct ExecutableMemory {
    pub code_bytes: u64,
    pub scratch_bytes: u64,
    /// No run leaves anything of its inputs for later ones (LAZYT_EXECUTABLE_KEEPS_NOTHING).
    pub keeps_nothing: bool,
}

/// A compiled program. The host may release it before its work is done (EXE-13): work holds an Arc.
pub trait Executable: Send + Sync + 'static {
    type Buffer: Buffer;
    fn output_meta(&self, index: usize) -> Result<OutputMeta>;
    fn memory(&self) -> ExecutableMemory;
    /// Computes all outputs, or fails; one call at a time for each device.
    fn run(&self, run: &Run<Self::Buffer>) -> Result<()>;
    /// Starts the work. Override it to return before it is done: move `run` to where it is computed, and finish it
    /// there. By default the work is done at once.
    fn launch(self: Arc<Self>, run: Run<Self::Buffer>) {
        let outcome = run.wait().and_then(|()| crate::error::caught(|| self.run(&run)));
        run.finish(outcome);
    }
}

/// One execute: its buffers are kept alive by the host until it is finished. Dropped unfinished, it fails.
pub struct Run<B> {
    pub(crate) inputs: Vec<Input<B>>,
    pub(crate) outputs: Vec<*const B>,
    pub(crate) waits: Vec<Arc<Event>>,
    pub(crate) event: Arc<Event>,
}
// SAFETY: buffers are Sync, and kept until the event is ready (executable.h), which consumes the Run.
unsafe impl<B: Buffer> Send for Run<B> {}
unsafe impl<B: Buffer> Sync for Run<B> {}

pub(crate) struct Input<B> {
    pub buffer: *const B,
    pub scalar: [u8; 16],
    pub key: (u64, u64),
    pub donated: bool,
}

/// What an input of execute is.
pub enum Argument<'a, B> {
    Buffer(&'a B),
    /// Little-endian, in the dtype of the input's value.
    Scalar([u8; 16]),
}

impl<B: Buffer> Run<B> {
    pub fn input_count(&self) -> usize {
        self.inputs.len()
    }
    pub fn input(&self, index: usize) -> Argument<'_, B> {
        let input = &self.inputs[index];
        // SAFETY: kept until the event is ready, which consumes self.
        match unsafe { input.buffer.as_ref() } {
            Some(buffer) => Argument::Buffer(buffer),
            None => Argument::Scalar(input.scalar),
        }
    }
    /// (stable id, content version) of an input's bytes; None = no key (EXE-7).
    pub fn input_key(&self, index: usize) -> Option<(u64, u64)> {
        Some(self.inputs[index].key).filter(|key| key.0 != 0)
    }
    /// The input's buffer is that of the output that names it as donor (EXE-5).
    pub fn is_donated(&self, index: usize) -> bool {
        self.inputs[index].donated
    }
    pub fn output_count(&self) -> usize {
        self.outputs.len()
    }
    pub fn output(&self, index: usize) -> &B {
        // SAFETY: as for inputs.
        unsafe { &*self.outputs[index] }
    }
    /// Blocks until what the work must wait for is done; fails with the first error among it (EXE-11).
    pub fn wait(&self) -> Result<()> {
        self.waits.iter().map(|event| event.outcome()).fold(Ok(()), Result::and)
    }
    /// The event becomes ready: the host may now let the buffers go.
    pub fn finish(self, outcome: Result<()>) {
        self.event.complete(outcome);
    }
}

impl<B> Drop for Run<B> {
    fn drop(&mut self) {
        if !self.event.is_ready() {
            self.event.complete(Err(Error::new(crate::Code::Internal, "the plugin dropped the work")));
        }
    }
}
