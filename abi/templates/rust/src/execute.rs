//! Running a program: inputs in, one operator after the other, outputs out.
use lazyt_plugin::{dtype_size, row_major, Argument, Buffer, DType, Error, Result, Run, Value, BOOL, FLOAT32, FLOAT64, INT64};

use crate::buffer::HostBuffer;
use crate::compile::Compiled;
use crate::ops::Call;

/// The elements of a value, dense and row-major.
#[derive(Clone, Default)]
pub enum Data {
    #[default]
    Nothing,
    F32(Vec<f32>),
    I64(Vec<i64>),
    /// Of another dtype: passed on, never computed with.
    Bytes(Vec<u8>),
}

/// Where element i, counted in row-major order of dims, lies.
pub fn offset(dims: &[i64], strides: &[i64], mut i: usize) -> usize {
    let mut at = 0;
    for (&dim, &stride) in dims.iter().zip(strides).rev() {
        at += i % dim as usize * stride as usize;
        i /= dim as usize;
    }
    at
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

pub fn reads_scalar(dtype: DType) -> bool {
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
    pub fn execute(&self, run: &Run<HostBuffer>) -> Result<()> {
        let program = self.program.view();
        if run.input_count() != program.input_count() || run.output_count() != program.output_count() {
            return Err(Error::invalid("acme: the program has another number of inputs or outputs")); // EXE-10
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
                        return Err(Error::invalid("acme: an input's buffer is too small"));
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
                return Err(Error::invalid("acme: an output's buffer is too small"));
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
