//! A program block as slices and strings, borrowed from it. The host verified the block before it handed it over;
//! an index that lies outside of a table panics.
use lazyt_sys::*;

/// An element type; numbers are those of dtype.h, and there may be others of a later minor.
pub type DType = lazyt_dtype_t;
pub const BOOL: DType = LAZYT_DTYPE_BOOL;
pub const INT64: DType = LAZYT_DTYPE_INT64;
pub const FLOAT32: DType = LAZYT_DTYPE_FLOAT32;
pub const FLOAT64: DType = LAZYT_DTYPE_FLOAT64;

/// Bytes of an element; 0 for a type that these headers do not know.
pub fn dtype_size(dtype: DType) -> usize {
    usize::try_from(dtype).ok().and_then(|i| DTYPE_SIZES.get(i)).map_or(0, |&size| size as usize)
}

#[derive(Clone, Copy)]
pub struct Program<'a>(&'a lazyt_program_t);

/// A copy of a program, to keep.
pub struct OwnedProgram(Box<[Aligned]>);

#[repr(align(64))]
#[derive(Clone, Copy)]
struct Aligned(#[allow(dead_code)] [u8; 64]);

#[derive(Clone, Copy)]
pub struct Value<'a> {
    program: Program<'a>,
    record: &'a lazyt_value_t,
}

#[derive(Clone, Copy)]
pub struct Node<'a> {
    program: Program<'a>,
    record: &'a lazyt_node_t,
}

/// An argument of a node, by the tag that it has in the block.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub enum Arg<'a> {
    None,
    /// A tensor, or a host scalar where the schema wants a number.
    Value(usize),
    Int(i64),
    Double(f64),
    Bool(bool),
    Complex(f64, f64),
    String(&'a str),
    DType(DType),
    List(List<'a>),
    Ints(&'a [i64]),
    /// As bits: `f64::from_bits(x as u64)`.
    Doubles(&'a [i64]),
    Bools(&'a [i64]),
    MemoryFormat(u64),
    Layout(u64),
    Device,
    /// Of a later minor.
    Unknown(u32),
}

/// A list of arguments: values, numbers or nones.
#[derive(Clone, Copy)]
pub struct List<'a> {
    program: Program<'a>,
    first: u64,
    count: usize,
}

impl std::fmt::Debug for List<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_list().entries(self.iter()).finish()
    }
}

impl<'a> List<'a> {
    pub fn len(&self) -> usize {
        self.count
    }
    pub fn is_empty(&self) -> bool {
        self.count == 0
    }
    pub fn get(&self, i: usize) -> Arg<'a> {
        assert!(i < self.count, "element {i} of a list of {}", self.count);
        self.program.arg(self.first + i as u64)
    }
    pub fn iter(self) -> impl Iterator<Item = Arg<'a>> {
        (0..self.count).map(move |i| self.get(i))
    }
    /// The values in it.
    pub fn values(self) -> impl Iterator<Item = usize> + 'a {
        (0..self.count).filter_map(move |i| if let Arg::Value(v) = self.get(i) { Some(v) } else { None })
    }
}

/// An input or an output: its value, and of an output the input whose buffer it takes over when donated (PRG-8).
#[derive(Clone, Copy, Debug)]
pub struct Output {
    pub value: usize,
    pub donor: Option<usize>,
}

impl<'a> Program<'a> {
    /// # Safety
    /// `block` is a verified program block that lives as long as 'a.
    pub(crate) unsafe fn new(block: *const lazyt_program_t) -> Self {
        Program(&*block)
    }

    fn base(&self) -> *const u8 {
        (self.0 as *const lazyt_program_t).cast()
    }
    fn record<T>(&self, table: &lazyt_table_t, index: u64) -> &'a T {
        assert!(index < table.count, "record {index} of {}", table.count);
        // SAFETY: the record lies inside of the block (verified), and records only grow.
        unsafe { &*self.base().add((table.offset + index * table.stride) as usize).cast::<T>() }
    }
    fn int_run(&self, first: u64, count: usize) -> &'a [i64] {
        if count == 0 {
            return &[];
        }
        assert!(first + count as u64 <= self.0.ints.count, "ints outside of their table");
        // SAFETY: as above; ints lie 8 bytes apart.
        unsafe { std::slice::from_raw_parts(self.base().add(self.0.ints.offset as usize).cast::<i64>().add(first as usize), count) }
    }
    fn bytes(&self, table: &lazyt_table_t, start: u64, size: u64) -> &'a [u8] {
        assert!(start <= table.count && size <= table.count - start, "bytes outside of their table");
        // SAFETY: as above.
        unsafe { std::slice::from_raw_parts(self.base().add((table.offset + start) as usize), size as usize) }
    }
    fn text(&self, text: lazyt_text_t) -> &'a str {
        std::str::from_utf8(self.bytes(&self.0.strings, text.start as u64, text.size as u64)).unwrap_or("(not UTF-8)")
    }
    fn arg(&self, index: u64) -> Arg<'a> {
        let a: &lazyt_arg_t = self.record(&self.0.args, index);
        let ints = || self.int_run(a.payload, a.count as usize);
        match a.kind {
            LAZYT_ARG_NONE => Arg::None,
            LAZYT_ARG_VALUE => Arg::Value(a.payload as usize),
            LAZYT_ARG_INT => Arg::Int(a.payload as i64),
            LAZYT_ARG_DOUBLE => Arg::Double(f64::from_bits(a.payload)),
            LAZYT_ARG_BOOL => Arg::Bool(a.payload != 0),
            LAZYT_ARG_COMPLEX => {
                let parts = self.int_run(a.payload, 2);
                Arg::Complex(f64::from_bits(parts[0] as u64), f64::from_bits(parts[1] as u64))
            }
            LAZYT_ARG_STRING => Arg::String(self.text(lazyt_text_t { start: a.payload as u32, size: a.count })),
            LAZYT_ARG_DTYPE => Arg::DType(a.payload as DType),
            LAZYT_ARG_LIST => Arg::List(List { program: *self, first: a.payload, count: a.count as usize }),
            LAZYT_ARG_INTS => Arg::Ints(ints()),
            LAZYT_ARG_DOUBLES => Arg::Doubles(ints()),
            LAZYT_ARG_BOOLS => Arg::Bools(ints()),
            LAZYT_ARG_MEMORY_FORMAT => Arg::MemoryFormat(a.payload),
            LAZYT_ARG_LAYOUT => Arg::Layout(a.payload),
            LAZYT_ARG_DEVICE => Arg::Device,
            kind => Arg::Unknown(kind),
        }
    }

    pub fn bytes_in_block(&self) -> usize {
        self.0.total_size as usize
    }
    pub fn to_owned(&self) -> OwnedProgram {
        let size = self.bytes_in_block();
        let mut copy = vec![Aligned([0; 64]); size.div_ceil(64)].into_boxed_slice();
        // SAFETY: the block has that many bytes, and so has the copy.
        unsafe { std::ptr::copy_nonoverlapping(self.base(), copy.as_mut_ptr().cast(), size) };
        OwnedProgram(copy)
    }

    pub fn value_count(&self) -> usize {
        self.0.values.count as usize
    }
    pub fn value(&self, index: usize) -> Value<'a> {
        Value { program: *self, record: self.record(&self.0.values, index as u64) }
    }
    pub fn node_count(&self) -> usize {
        self.0.nodes.count as usize
    }
    pub fn node(&self, index: usize) -> Node<'a> {
        Node { program: *self, record: self.record(&self.0.nodes, index as u64) }
    }
    pub fn nodes(self) -> impl Iterator<Item = Node<'a>> {
        (0..self.node_count()).map(move |i| self.node(i))
    }
    /// The values of the inputs, in the order of execute's.
    pub fn inputs(self) -> impl Iterator<Item = usize> + 'a {
        (0..self.0.inputs.count).map(move |i| self.record::<lazyt_input_t>(&self.0.inputs, i).value as usize)
    }
    pub fn input_count(&self) -> usize {
        self.0.inputs.count as usize
    }
    pub fn outputs(self) -> impl Iterator<Item = Output> + 'a {
        (0..self.0.outputs.count).map(move |i| {
            let o: &lazyt_output_t = self.record(&self.0.outputs, i);
            Output { value: o.value as usize, donor: (o.donor != LAZYT_NONE).then_some(o.donor as usize) }
        })
    }
    pub fn output_count(&self) -> usize {
        self.0.outputs.count as usize
    }
    /// The constants: value and bytes; None for one whose bytes are in a file.
    pub fn constants(self) -> impl Iterator<Item = (usize, Option<&'a [u8]>)> {
        (0..self.0.constants.count).map(move |i| {
            let c: &lazyt_constant_t = self.record(&self.0.constants, i);
            (c.value as usize, (c.file.size == 0).then(|| self.bytes(&self.0.data, c.offset, c.size)))
        })
    }
}

impl OwnedProgram {
    pub fn view(&self) -> Program<'_> {
        // SAFETY: a copy of a verified block, which holds no pointers.
        unsafe { Program::new(self.0.as_ptr().cast()) }
    }
}

impl<'a> Value<'a> {
    pub fn dtype(&self) -> DType {
        self.record.dtype
    }
    /// A rank-0 input whose bytes travel in execute (PRG-6).
    pub fn is_host_scalar(&self) -> bool {
        self.record.flags & LAZYT_VALUE_HOST_SCALAR != 0
    }
    pub fn dims(&self) -> &'a [i64] {
        self.program.int_run(self.record.dims as u64, self.record.rank as usize)
    }
    pub fn count(&self) -> usize {
        self.dims().iter().product::<i64>() as usize
    }
    /// With the row-major strides written out where the value has none of its own.
    pub fn strides(&self) -> Vec<i64> {
        if self.record.strides == LAZYT_NONE {
            return row_major(self.dims());
        }
        self.program.int_run(self.record.strides as u64, self.record.rank as usize).to_vec()
    }
    /// Bytes from the first to past the last element, as the strides spread them.
    pub fn span_bytes(&self) -> usize {
        if self.count() == 0 {
            return 0;
        }
        let last: i64 = self.dims().iter().zip(self.strides()).map(|(dim, stride)| (dim - 1) * stride).sum();
        (last as usize + 1) * dtype_size(self.dtype())
    }
}

/// The strides of dense row-major order.
pub fn row_major(dims: &[i64]) -> Vec<i64> {
    let mut strides = vec![1; dims.len()];
    for d in (1..dims.len()).rev() {
        strides[d - 1] = strides[d] * dims[d].max(1);
    }
    strides
}

impl<'a> Node<'a> {
    /// "aten::add"
    pub fn name(&self) -> &'a str {
        self.program.text(self.record.name)
    }
    /// "Tensor"; empty for none.
    pub fn overload(&self) -> &'a str {
        self.program.text(self.record.overload)
    }
    /// "aten::add.Tensor", "aten::relu"
    pub fn full_name(&self) -> String {
        let dot = if self.overload().is_empty() { "" } else { "." };
        format!("{}{dot}{}", self.name(), self.overload())
    }
    pub fn arg_count(&self) -> usize {
        self.record.arg_count as usize
    }
    pub fn arg(&self, i: usize) -> Arg<'a> {
        assert!(i < self.arg_count(), "{}: argument {i} of {}", self.full_name(), self.arg_count());
        self.program.arg(self.record.args as u64 + i as u64)
    }
    pub fn args(self) -> impl Iterator<Item = Arg<'a>> {
        (0..self.arg_count()).map(move |i| self.arg(i))
    }
    /// The result values.
    pub fn results(&self) -> std::ops::Range<usize> {
        let first = self.record.results as usize;
        first..first + self.record.result_count as usize
    }
}
