//! The operators: for each, which nodes are taken, and how they are computed.
use lazyt_plugin::{row_major, Arg, Code, DType, Error, Node, Program, Reason, Result, FLOAT32, INT64};

use crate::execute::{offset, reads_scalar, Data};

/// One node of a program that runs.
pub struct Call<'a> {
    pub program: Program<'a>,
    pub node: Node<'a>,
    pub data: &'a [Data],
    pub numbers: &'a [f64],
}

/// Returns its results, dense and row-major.
pub type Operator = fn(&Call<'_>) -> Result<Vec<Vec<f32>>>;
type Refusal = (Reason, &'static str);

#[derive(Clone, Copy)]
struct Tensor<'a> {
    data: &'a [f32],
    dims: &'a [i64],
}

impl<'a> Call<'a> {
    fn value(&self, index: usize) -> Tensor<'a> {
        match &self.data[index] {
            Data::F32(data) => Tensor { data, dims: self.program.value(index).dims() },
            _ => unreachable!("find() lets float32 in only"),
        }
    }
    fn tensor(&self, i: usize) -> Tensor<'a> {
        match self.node.arg(i) {
            Arg::Value(index) => self.value(index),
            other => unreachable!("a tensor is {other:?}"),
        }
    }
    fn list(&self, i: usize) -> Vec<Tensor<'a>> {
        match self.node.arg(i) {
            Arg::List(list) => list.values().map(|index| self.value(index)).collect(),
            other => unreachable!("a list is {other:?}"),
        }
    }
    fn indices(&self, i: usize) -> &'a [i64] {
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
    fn number(&self, i: usize) -> f64 {
        match self.node.arg(i) {
            Arg::Value(index) => self.numbers[index],
            Arg::Int(x) => x as f64,
            Arg::Double(x) => x,
            Arg::Bool(x) => x as i32 as f64,
            other => unreachable!("a number is {other:?}"),
        }
    }
    // [end]
    fn out_dims(&self) -> &'a [i64] {
        self.program.value(self.node.results().start).dims()
    }
    fn out_count(&self) -> usize {
        self.program.value(self.node.results().start).count()
    }
}

// --- which nodes are taken

// [region refuse]
/// All tensors are f32, except argument `i64`. A host scalar of another dtype is converted (PRG-4).
fn dtypes(p: Program<'_>, node: Node<'_>, i64: Option<usize>) -> Result<(), Refusal> {
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
    Err((Reason::DType, "acme computes float32"))
}
// [end]

fn dims<'a>(p: Program<'a>, arg: Arg<'a>) -> &'a [i64] {
    match arg {
        Arg::Value(index) => p.value(index).dims(),
        _ => &[],
    }
}

fn check(holds: bool, reason: Reason, why: &'static str) -> Result<(), Refusal> {
    if holds {
        Ok(())
    } else {
        Err((reason, why))
    }
}

fn last_dim(p: Program<'_>, node: Node<'_>, dim: usize) -> Result<(), Refusal> {
    let last = dims(p, node.arg(0)).len() as i64 - 1;
    let is_last = matches!(node.arg(dim), Arg::Int(d) if d == last);
    check(is_last, Reason::Argument, "acme takes the last dim only")
}

const MEAN: f64 = 1.0; // PyTorch's Reduction; SUM is 2

fn reduction(node: Node<'_>, i: usize) -> Result<(), Refusal> {
    let known = matches!(node.arg(i), Arg::Int(1 | 2));
    check(known, Reason::Argument, "acme takes the reductions mean and sum")
}

/// (input, target, reduction) from argument `first` on.
fn mse(p: Program<'_>, node: Node<'_>, first: usize) -> Result<(), Refusal> {
    reduction(node, first + 2)?;
    let same = dims(p, node.arg(first)) == dims(p, node.arg(first + 1));
    check(same, Reason::Argument, "acme takes input and target of one shape")
}

/// (input, target, weight, reduction, ignore_index) from argument `first` on.
fn nll(p: Program<'_>, node: Node<'_>, first: usize) -> Result<(), Refusal> {
    check(dims(p, node.arg(first)).len() == 2, Reason::Rank, "acme takes [batch, classes]")?;
    let plain = matches!(node.arg(first + 2), Arg::None);
    check(plain, Reason::Argument, "acme takes no class weights")?;
    reduction(node, first + 3)
}

fn lists(p: Program<'_>, node: Node<'_>) -> Result<(), Refusal> {
    if let (Arg::List(a), Arg::List(b)) = (node.arg(0), node.arg(1)) {
        let same = a.iter().zip(b.iter()).all(|(a, b)| dims(p, a) == dims(p, b));
        check(same, Reason::Argument, "acme takes lists of equal shapes")?;
    }
    Ok(())
}

// [region table]
/// How a node is computed, or why it is not taken.
pub fn find(p: Program<'_>, node: Node<'_>) -> Result<Operator, Refusal> {
    let mut i64 = None;
    let operator: Operator = match (node.name(), node.overload()) {
        ("aten::_foreach_add", "List") => lists(p, node).map(|()| foreach_add as Operator)?,
        ("aten::_foreach_mul", "Scalar") => foreach_mul,
        ("aten::_log_softmax", "") => last_dim(p, node, 1).map(|()| log_softmax as Operator)?,
        ("aten::_log_softmax_backward_data", "") => last_dim(p, node, 2).map(|()| log_softmax_backward as Operator)?,
        ("aten::add", "Tensor") => add,
        ("aten::addmm", "") => addmm,
        ("aten::clone" | "aten::reshape", "") => same_elements,
        ("aten::full", "") => full,
        ("aten::mm", "") => mm,
        ("aten::mse_loss", "") => mse(p, node, 0).map(|()| mse_loss as Operator)?,
        ("aten::mse_loss_backward", "") => mse(p, node, 1).map(|()| mse_loss_backward as Operator)?,
        ("aten::mul", "Tensor") => mul,
        ("aten::nll_loss_forward", "") => {
            i64 = Some(1);
            nll(p, node, 0).map(|()| nll_loss as Operator)?
        }
        ("aten::nll_loss_backward", "") => {
            i64 = Some(2);
            nll(p, node, 1).map(|()| nll_loss_backward as Operator)?
        }
        ("aten::permute", "") => permute,
        ("aten::relu", "") => relu,
        ("aten::sum", "dim_IntList") => sum,
        ("aten::threshold_backward", "") => threshold_backward,
        _ => return Err((Reason::UnknownOperator, "acme does not have this operator")),
    };
    dtypes(p, node, i64)?;
    Ok(operator)
}
// [end]

// --- moving elements

fn permute(c: &Call<'_>) -> Result<Vec<Vec<f32>>> {
    let t = c.tensor(0);
    let dense = row_major(t.dims);
    let strides: Vec<i64> = c.indices(1).iter().map(|&d| dense[d as usize]).collect();
    Ok(vec![(0..t.data.len()).map(|i| t.data[offset(c.out_dims(), &strides, i)]).collect()])
}

fn same_elements(c: &Call<'_>) -> Result<Vec<Vec<f32>>> {
    Ok(vec![c.tensor(0).data.to_vec()]) // reshape, clone
}

fn full(c: &Call<'_>) -> Result<Vec<Vec<f32>>> {
    Ok(vec![vec![c.number(1) as f32; c.out_count()]])
}

// --- element by element

/// Strides that read t as if it had these dims: 0 where it is repeated (PRG-4).
fn broadcast(t: Tensor<'_>, dims: &[i64]) -> Vec<i64> {
    let mut strides = vec![0; dims.len() - t.dims.len()];
    strides.extend(row_major(t.dims).iter().zip(t.dims).map(|(&stride, &dim)| if dim == 1 { 0 } else { stride }));
    strides
}

fn zip(dims: &[i64], a: Tensor<'_>, b: Tensor<'_>, f: impl Fn(f32, f32) -> f32) -> Vec<f32> {
    let count = dims.iter().product::<i64>() as usize;
    if a.data.len() == count && b.data.len() == count {
        return a.data.iter().zip(b.data).map(|(&x, &y)| f(x, y)).collect();
    }
    let (sa, sb) = (broadcast(a, dims), broadcast(b, dims));
    (0..count).map(|i| f(a.data[offset(dims, &sa, i)], b.data[offset(dims, &sb, i)])).collect()
}

fn add(c: &Call<'_>) -> Result<Vec<Vec<f32>>> {
    let alpha = c.number(2) as f32;
    Ok(vec![zip(c.out_dims(), c.tensor(0), c.tensor(1), |x, y| x + alpha * y)])
}

fn mul(c: &Call<'_>) -> Result<Vec<Vec<f32>>> {
    Ok(vec![zip(c.out_dims(), c.tensor(0), c.tensor(1), |x, y| x * y)])
}

fn relu(c: &Call<'_>) -> Result<Vec<Vec<f32>>> {
    Ok(vec![c.tensor(0).data.iter().map(|&x| if x < 0.0 { 0.0 } else { x }).collect()]) // NaN stays
}

fn threshold_backward(c: &Call<'_>) -> Result<Vec<Vec<f32>>> {
    let threshold = c.number(2) as f32;
    Ok(vec![zip(c.out_dims(), c.tensor(0), c.tensor(1), |grad, x| if x <= threshold { 0.0 } else { grad })])
}

/// The step of SGD.
fn foreach_add(c: &Call<'_>) -> Result<Vec<Vec<f32>>> {
    let alpha = c.number(2) as f32;
    let pairs = c.list(0).into_iter().zip(c.list(1));
    Ok(pairs.map(|(a, b)| zip(a.dims, a, b, |x, y| x + alpha * y)).collect())
}

/// Momentum.
fn foreach_mul(c: &Call<'_>) -> Result<Vec<Vec<f32>>> {
    let factor = c.number(1) as f32;
    Ok(c.list(0).iter().map(|t| t.data.iter().map(|x| x * factor).collect()).collect())
}

// --- matrices and sums

/// o += alpha * a @ b
fn multiply(a: Tensor<'_>, b: Tensor<'_>, o: &mut [f32], alpha: f32) {
    let (inner, columns) = (a.dims[1] as usize, b.dims[1] as usize);
    if inner == 0 || columns == 0 {
        return;
    }
    for (row, out) in a.data.chunks_exact(inner).zip(o.chunks_exact_mut(columns)) {
        for (x, line) in row.iter().zip(b.data.chunks_exact(columns)) {
            for (sum, y) in out.iter_mut().zip(line) {
                *sum += alpha * x * y;
            }
        }
    }
}

fn mm(c: &Call<'_>) -> Result<Vec<Vec<f32>>> {
    let mut out = vec![0.0; c.out_count()];
    multiply(c.tensor(0), c.tensor(1), &mut out, 1.0);
    Ok(vec![out])
}

/// beta * bias + alpha * a @ b
fn addmm(c: &Call<'_>) -> Result<Vec<Vec<f32>>> {
    let (bias, beta) = (c.tensor(0), c.number(3) as f32);
    let mut out = zip(c.out_dims(), bias, bias, |x, _| if beta == 0.0 { 0.0 } else { beta * x });
    multiply(c.tensor(1), c.tensor(2), &mut out, c.number(4) as f32);
    Ok(vec![out])
}

fn sum(c: &Call<'_>) -> Result<Vec<Vec<f32>>> {
    let (t, over) = (c.tensor(0), c.indices(1));
    let summed = |d: usize| over.is_empty() || over.contains(&(d as i64));
    let kept: Vec<i64> = t.dims.iter().enumerate().map(|(d, &dim)| if summed(d) { 1 } else { dim }).collect();
    let mut strides = row_major(&kept); // of the result, read with the dims of t
    for (stride, &dim) in strides.iter_mut().zip(&kept) {
        if dim == 1 {
            *stride = 0;
        }
    }
    let mut out = vec![0.0; c.out_count()];
    for (i, x) in t.data.iter().enumerate() {
        out[offset(t.dims, &strides, i)] += x;
    }
    Ok(vec![out])
}

// --- losses

fn rows<'a>(t: Tensor<'a>) -> impl Iterator<Item = &'a [f32]> {
    t.data.chunks_exact(t.dims.last().map_or(1, |&n| n.max(1) as usize))
}

fn log_softmax(c: &Call<'_>) -> Result<Vec<Vec<f32>>> {
    let of_row = |row: &[f32]| {
        let most = row.iter().copied().fold(f32::NEG_INFINITY, f32::max);
        let total: f32 = row.iter().map(|x| (x - most).exp()).sum();
        row.iter().map(|x| x - most - total.ln()).collect::<Vec<_>>()
    };
    Ok(vec![rows(c.tensor(0)).flat_map(of_row).collect()])
}

fn log_softmax_backward(c: &Call<'_>) -> Result<Vec<Vec<f32>>> {
    let of_row = |(grad, row): (&[f32], &[f32])| {
        let total: f32 = grad.iter().sum();
        grad.iter().zip(row).map(|(g, x)| g - x.exp() * total).collect::<Vec<_>>()
    };
    Ok(vec![rows(c.tensor(0)).zip(rows(c.tensor(1))).flat_map(of_row).collect()])
}

/// Where the class of each row lies that counts. A bad one poisons the outputs (EXE-2), never the process.
fn places(input: Tensor<'_>, target: &[i64], ignored: f64) -> Result<Vec<usize>> {
    let classes = input.dims[1];
    let counted = target.iter().enumerate().filter(|(_, &class)| class as f64 != ignored);
    let place = |(row, &class): (usize, &i64)| {
        if (0..classes).contains(&class) {
            return Ok(row * classes as usize + class as usize);
        }
        Err(Error::new(Code::OutOfRange, format!("acme: nll_loss: target {class} of {classes} classes")))
    };
    counted.map(place).collect()
}

fn nll_loss(c: &Call<'_>) -> Result<Vec<Vec<f32>>> {
    let input = c.tensor(0);
    let places = places(input, c.indices(1), c.number(4))?;
    let weight = places.len() as f32;
    let loss = -places.iter().map(|&at| input.data[at]).sum::<f32>();
    Ok(vec![vec![if c.number(3) == MEAN { loss / weight } else { loss }], vec![weight]])
}

fn nll_loss_backward(c: &Call<'_>) -> Result<Vec<Vec<f32>>> {
    let grad = c.tensor(0).data[0];
    let step = if c.number(4) == MEAN { grad / c.tensor(6).data[0] } else { grad };
    let mut out = vec![0.0; c.out_count()];
    for at in places(c.tensor(1), c.indices(2), c.number(5))? {
        out[at] = -step;
    }
    Ok(vec![out])
}

fn mse_loss(c: &Call<'_>) -> Result<Vec<Vec<f32>>> {
    let (a, b) = (c.tensor(0), c.tensor(1));
    let total: f32 = a.data.iter().zip(b.data).map(|(x, y)| (x - y) * (x - y)).sum();
    Ok(vec![vec![if c.number(2) == MEAN { total / a.data.len() as f32 } else { total }]])
}

fn mse_loss_backward(c: &Call<'_>) -> Result<Vec<Vec<f32>>> {
    let n = if c.number(3) == MEAN { c.out_count() as f32 } else { 1.0 };
    let step = 2.0 * c.tensor(0).data[0] / n;
    Ok(vec![zip(c.out_dims(), c.tensor(1), c.tensor(2), |x, y| step * (x - y))])
}
