//! A whole plugin around a function that finds operators: one device whose memory is the host's, buffers, which nodes are
//! taken, programs that are kept and run one node after the other. Values lie dense and row-major while a program runs;
//! buffers change only at its end, so that whatever fails has consumed nothing (EXE-6).
//!
//! Implement [`Interpreter`], then `export_plugin!(Interpreted<MyBackend>);`. A vendor begins here and replaces what the
//! hardware does better: each part implements a trait of this crate.
use std::marker::PhantomData;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, RwLock, RwLockReadGuard};

use crate::{
    dtype_size, row_major, Answer, Arg, Argument, Backend, Buffer, BufferDesc, Code, DType, Device, DeviceInfo, Error,
    Executable, ExecutableMemory, Memory, MemoryStats, Node, OutputMeta, OwnedProgram, Program, Reason, Result, Run, Value,
    BOOL, FLOAT32, FLOAT64, INT64,
};

const ALIGNMENT: u64 = 64;

/// What a vendor writes.
pub trait Interpreter: Send + Sync + 'static {
    const NAME: &'static str;
    const VERSION: &'static str;
    const DESCRIPTION: &'static str;
    const VENDOR: &'static str;
    const DEVICE: &'static str;
    /// Below 0: taken by name only.
    const SCORE: i32;
    /// How a node is computed, or why it is not taken.
    fn find(program: Program<'_>, node: Node<'_>) -> Result<Operator, Refusal>;
    /// Opens the driver (LIB-3).
    fn init() -> Result<()> {
        Ok(())
    }
    fn shutdown() {}
}

/// Returns its results, dense and row-major; an error is that of the outputs (EXE-2).
pub type Operator = fn(&Call<'_>) -> Result<Vec<Vec<f32>>>;
pub type Refusal = (Reason, &'static str);

pub fn refuse_unless(holds: bool, reason: Reason, why: &'static str) -> Result<(), Refusal> {
    if holds {
        Ok(())
    } else {
        Err((reason, why))
    }
}

// --- a node that runs

/// One node of a program that runs.
pub struct Call<'a> {
    pub program: Program<'a>,
    pub node: Node<'a>,
    data: &'a [Data],
    numbers: &'a [f64],
}

#[derive(Clone, Copy)]
pub struct Tensor<'a> {
    pub data: &'a [f32],
    pub dims: &'a [i64],
}

impl<'a> Call<'a> {
    fn value(&self, index: usize) -> Tensor<'a> {
        match &self.data[index] {
            Data::F32(data) => Tensor { data, dims: self.program.value(index).dims() },
            _ => unreachable!("refuse tensors that are not float32"),
        }
    }
    pub fn tensor(&self, i: usize) -> Tensor<'a> {
        match self.node.arg(i) {
            Arg::Value(index) => self.value(index),
            other => unreachable!("a tensor is {other:?}"),
        }
    }
    pub fn list(&self, i: usize) -> Vec<Tensor<'a>> {
        match self.node.arg(i) {
            Arg::List(list) => list.values().map(|index| self.value(index)).collect(),
            other => unreachable!("a list is {other:?}"),
        }
    }
    pub fn indices(&self, i: usize) -> &'a [i64] {
        match self.node.arg(i) {
            Arg::Value(index) => match &self.data[index] {
                Data::I64(data) => data,
                _ => unreachable!("find() lets int64 in only"),
            },
            Arg::Ints(ints) => ints,
            _ => &[],
        }
    }
    // [region number]
    /// Written into the program, or a host scalar, whose bytes come with each execute (PRG-6).
    pub fn number(&self, i: usize) -> f64 {
        match self.node.arg(i) {
            Arg::Value(index) => self.numbers[index],
            Arg::Int(x) => x as f64,
            Arg::Double(x) => x,
            Arg::Bool(x) => x as i32 as f64,
            other => unreachable!("a number is {other:?}"),
        }
    }
    // [end]
    pub fn out_dims(&self) -> &'a [i64] {
        self.program.value(self.node.results().start).dims()
    }
    pub fn out_count(&self) -> usize {
        self.program.value(self.node.results().start).count()
    }
}

// --- which nodes are taken

/// All tensors are f32, except argument `i64`. A host scalar of another dtype is converted (PRG-4).
pub fn float32_but(p: Program<'_>, node: Node<'_>, i64: Option<usize>) -> Result<(), Refusal> {
    let is = |index: usize, dtype: DType| {
        let value = p.value(index);
        value.dtype() == dtype || (value.is_host_scalar() && reads_scalar(value.dtype()))
    };
    let args = node.args().enumerate().all(|(i, arg)| {
        let wanted = if i64 == Some(i) { INT64 } else { FLOAT32 };
        match arg {
            Arg::Value(index) => is(index, wanted),
            Arg::List(list) => list.values().all(|index| is(index, wanted)),
            _ => true,
        }
    });
    if args && node.results().all(|index| is(index, FLOAT32)) {
        return Ok(());
    }
    Err((Reason::DType, "computes float32"))
}

pub fn float32(p: Program<'_>, node: Node<'_>) -> Result<(), Refusal> {
    float32_but(p, node, None)
}

/// Of the tensor that an argument is.
pub fn dims<'a>(p: Program<'a>, arg: Arg<'a>) -> &'a [i64] {
    match arg {
        Arg::Value(index) => p.value(index).dims(),
        _ => &[],
    }
}

// --- where elements lie

/// Where element i, counted in row-major order of dims, lies.
pub fn offset(dims: &[i64], strides: &[i64], mut i: usize) -> usize {
    let mut at = 0;
    for (&dim, &stride) in dims.iter().zip(strides).rev() {
        at += i % dim as usize * stride as usize;
        i /= dim as usize;
    }
    at
}

/// Strides that read t as if it had these dims: 0 where it is repeated (PRG-4).
pub fn broadcast(t: Tensor<'_>, dims: &[i64]) -> Vec<i64> {
    let mut strides = vec![0; dims.len() - t.dims.len()];
    strides.extend(row_major(t.dims).iter().zip(t.dims).map(|(&stride, &dim)| if dim == 1 { 0 } else { stride }));
    strides
}

// --- memory

/// What memory_stats tells (DEV-4).
#[derive(Default)]
struct Usage {
    bytes: AtomicU64,
    peak: AtomicU64,
}

impl Usage {
    fn stats(&self) -> MemoryStats {
        let bytes = self.bytes.load(Relaxed);
        let peak = self.peak.load(Relaxed).max(bytes);
        MemoryStats { bytes_in_use: bytes, peak_bytes_in_use: peak, bytes_reserved: bytes, derived_bytes: 0 }
    }
}

/// Counts bytes for as long as it lives.
struct Share {
    usage: Arc<Usage>,
    bytes: u64,
}

impl Share {
    fn of(usage: &Arc<Usage>, bytes: u64) -> Self {
        let now = usage.bytes.fetch_add(bytes, Relaxed) + bytes;
        usage.peak.fetch_max(now, Relaxed);
        Share { usage: usage.clone(), bytes }
    }
    fn bytes(&self) -> u64 {
        self.bytes
    }
}

impl Drop for Share {
    fn drop(&mut self) {
        self.usage.bytes.fetch_sub(self.bytes, Relaxed);
    }
}

pub struct HostBuffer {
    memory: RwLock<Memory>,
    share: Share,
}

impl HostBuffer {
    fn new(size: u64, alignment: u64, usage: &Arc<Usage>) -> Result<Self> {
        let memory = Memory::new(size as usize, alignment as usize)?;
        Ok(HostBuffer { memory: RwLock::new(memory), share: Share::of(usage, size) })
    }
    fn bytes(&self) -> RwLockReadGuard<'_, Memory> {
        self.memory.read().unwrap()
    }
}

impl Buffer for HostBuffer {
    fn size(&self) -> u64 {
        self.share.bytes()
    }
    fn read(&self, offset: u64, dst: &mut [u8]) -> Result<()> {
        let from = offset as usize;
        dst.copy_from_slice(&self.bytes()[from..from + dst.len()]);
        Ok(())
    }
    fn write(&self, offset: u64, src: &[u8]) -> Result<()> {
        let from = offset as usize;
        self.memory.write().unwrap()[from..from + src.len()].copy_from_slice(src);
        Ok(())
    }
    fn host_pointer(&self) -> Option<*mut u8> {
        Some(self.bytes().as_ptr())
    }
}

// --- the device

/// The plugin around `T`.
pub struct Interpreted<T>(PhantomData<T>);

impl<T: Interpreter> Backend for Interpreted<T> {
    type Device = Host<T>;
    const NAME: &'static str = T::NAME;
    const VERSION: &'static str = T::VERSION;
    const DESCRIPTION: &'static str = T::DESCRIPTION;
    const VENDOR: &'static str = T::VENDOR;
    const SCORE: i32 = T::SCORE;

    fn init() -> Result<()> {
        T::init()
    }
    fn shutdown() {
        T::shutdown()
    }
    fn device_count() -> Result<u32> {
        Ok(1)
    }
    fn describe(_index: u32) -> Result<DeviceInfo> {
        Ok(DeviceInfo { name: T::DEVICE, vendor: T::VENDOR, host_visible: true, total_bytes: 0, alignment: ALIGNMENT })
    }
    fn open(_index: u32) -> Result<Host<T>> {
        Ok(Host { usage: Arc::default(), of: PhantomData })
    }
}

pub struct Host<T> {
    usage: Arc<Usage>,
    of: PhantomData<T>,
}

/// "aten::cos: acme does not have this operator"
fn told<T: Interpreter>(node: Node<'_>, why: &str) -> String {
    format!("{}: {} {why}", node.full_name(), T::NAME)
}

impl<T: Interpreter> Device for Host<T> {
    type Buffer = HostBuffer;
    type Executable = Compiled;

    fn memory_stats(&self) -> MemoryStats {
        self.usage.stats()
    }
    fn alloc(&self, desc: BufferDesc) -> Result<HostBuffer> {
        if desc.memory_space != 0 {
            return Err(Error::invalid(format!("{} has memory space 0 only", T::NAME)));
        }
        HostBuffer::new(desc.size, desc.alignment.max(ALIGNMENT), &self.usage)
    }
    // [region query]
    fn answer(&self, program: Program<'_>, node: Node<'_>) -> Answer {
        match T::find(program, node) {
            Ok(_) => Answer::Take { group: 0, cost_ns: 0 },
            Err((reason, why)) => Answer::Refuse { reason, why: told::<T>(node, why) },
        }
    }
    // [end]
    fn compile(&self, program: Program<'_>, _flags: u64) -> Result<Compiled> {
        if program.constants().any(|(_, bytes)| bytes.is_none()) {
            return Err(Error::new(Code::Unimplemented, format!("{}: constants in files are not read", T::NAME)));
        }
        let operators = program.nodes().map(|node| {
            T::find(program, node).map_err(|(_, why)| Error::new(Code::Unimplemented, told::<T>(node, why)))
        });
        let operators = operators.collect::<Result<_>>()?;
        Ok(Compiled { program: program.to_owned(), operators, share: Share::of(&self.usage, program.bytes_in_block() as u64) })
    }
}

// --- programs

pub struct Compiled {
    program: OwnedProgram, // the host's block is ours during compile only (EXE-1)
    operators: Vec<Operator>,
    share: Share,
}

impl Executable for Compiled {
    type Buffer = HostBuffer;

    fn output_meta(&self, index: usize) -> Result<OutputMeta> {
        let program = self.program.view();
        let output = program.outputs().nth(index).ok_or_else(|| Error::invalid("there is no such output"))?;
        let size = program.value(output.value).span_bytes() as u64;
        Ok(OutputMeta { size, alignment: ALIGNMENT, ..OutputMeta::default() })
    }
    fn memory(&self) -> ExecutableMemory {
        ExecutableMemory { code_bytes: self.share.bytes(), scratch_bytes: 0, keeps_nothing: true }
    }
    fn run(&self, run: &Run<HostBuffer>) -> Result<()> {
        self.execute(run)
    }
}

/// The elements of a value, dense and row-major.
#[derive(Clone, Default)]
enum Data {
    #[default]
    Nothing,
    F32(Vec<f32>),
    I64(Vec<i64>),
    /// Of another dtype: passed on, never computed with.
    Bytes(Vec<u8>),
}

/// The element numbers of a value in its buffer, in row-major order of its dims (PRG-2).
fn places<'a>(value: &Value<'a>) -> impl Iterator<Item = usize> + 'a {
    let (dims, strides) = (value.dims(), value.strides());
    let dense = strides == row_major(dims);
    (0..value.count()).map(move |i| if dense { i } else { offset(dims, &strides, i) })
}

fn load(value: &Value<'_>, bytes: &[u8]) -> Data {
    match value.dtype() {
        FLOAT32 => Data::F32(places(value).map(|at| f32::from_ne_bytes(bytes[4 * at..4 * at + 4].try_into().unwrap())).collect()),
        INT64 => Data::I64(places(value).map(|at| i64::from_ne_bytes(bytes[8 * at..8 * at + 8].try_into().unwrap())).collect()),
        other => {
            let size = dtype_size(other);
            Data::Bytes(places(value).flat_map(|at| bytes[size * at..size * (at + 1)].iter().copied()).collect())
        }
    }
}

fn store(value: &Value<'_>, data: &Data, bytes: &mut [u8]) {
    let mut put = |i: usize, at: usize, size: usize| {
        let to = &mut bytes[at * size..(at + 1) * size];
        match data {
            Data::F32(x) => to.copy_from_slice(&x[i].to_ne_bytes()),
            Data::I64(x) => to.copy_from_slice(&x[i].to_ne_bytes()),
            Data::Bytes(x) => to.copy_from_slice(&x[i * size..(i + 1) * size]),
            Data::Nothing => unreachable!("a value is computed before it is returned"),
        }
    };
    for (i, at) in places(value).enumerate() {
        put(i, at, dtype_size(value.dtype()));
    }
}

fn reads_scalar(dtype: DType) -> bool {
    [FLOAT64, FLOAT32, INT64, BOOL].contains(&dtype)
}

/// A host scalar (PRG-6), which the node that reads it converts (PRG-4).
fn number(bytes: [u8; 16], dtype: DType) -> f64 {
    match dtype {
        FLOAT64 => f64::from_le_bytes(bytes[..8].try_into().unwrap()),
        FLOAT32 => f32::from_le_bytes(bytes[..4].try_into().unwrap()) as f64,
        INT64 => i64::from_le_bytes(bytes[..8].try_into().unwrap()) as f64,
        _ => bytes[0] as f64, // BOOL: no other is taken
    }
}

impl Compiled {
    fn execute(&self, run: &Run<HostBuffer>) -> Result<()> {
        let program = self.program.view();
        if run.input_count() != program.input_count() || run.output_count() != program.output_count() {
            return Err(Error::invalid("the program has another number of inputs or outputs")); // EXE-10
        }
        let mut data = vec![Data::Nothing; program.value_count()];
        let mut numbers = vec![0.0; program.value_count()];
        for (index, bytes) in program.constants() {
            data[index] = load(&program.value(index), bytes.unwrap_or_default());
        }
        for (i, index) in program.inputs().enumerate() {
            let value = program.value(index);
            match run.input(i) {
                Argument::Scalar(bytes) => {
                    numbers[index] = number(bytes, value.dtype());
                    data[index] = Data::F32(vec![numbers[index] as f32]);
                }
                Argument::Buffer(buffer) => {
                    if (buffer.size() as usize) < value.span_bytes() {
                        return Err(Error::invalid("an input's buffer is too small"));
                    }
                    data[index] = load(&value, &buffer.bytes());
                }
            }
        }
        for (node, operator) in program.nodes().zip(&self.operators) {
            let call = Call { program, node, data: &data, numbers: &numbers };
            let results = operator(&call).map_err(|error| error.note(node.full_name(), "while it ran"))?;
            for (index, result) in node.results().zip(results) {
                data[index] = Data::F32(result);
            }
        }
        // Buffers change only here: whatever failed before has consumed nothing (EXE-6).
        for (i, output) in program.outputs().enumerate() {
            if (run.output(i).size() as usize) < program.value(output.value).span_bytes() {
                return Err(Error::invalid("an output's buffer is too small"));
            }
        }
        for (i, output) in program.outputs().enumerate() {
            let value = program.value(output.value);
            let mut bytes = vec![0; value.span_bytes()];
            run.output(i).read(0, &mut bytes)?; // what lies between strided elements stays (BUF-9)
            store(&value, &data[output.value], &mut bytes);
            run.output(i).write(0, &bytes)?;
        }
        Ok(())
    }
}
