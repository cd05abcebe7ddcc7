//! acme, a lazyt backend: who it is, and its operators. Rules such as (BUF-5) stand in lazyt's headers.
#![deny(unsafe_code)]

use lazyt_plugin::interpreter::{
    broadcast, dims, float32, float32_but, offset, refuse_unless, Call, Interpreted, Interpreter, Operator, Refusal, Tensor,
};
use lazyt_plugin::{export_plugin, row_major, Arg, Code, Error, Node, Program, Reason, Result};

// [region plugin]
struct Acme;

impl Interpreter for Acme {
    const NAME: &'static str = "acme";
    const VERSION: &'static str = env!("CARGO_PKG_VERSION");
    const DESCRIPTION: &'static str = "acme: runs programs on the CPU";
    const VENDOR: &'static str = "acme";
    const DEVICE: &'static str = "acme on the CPU";
    const SCORE: i32 = -1; // below 0: taken only by those who name it; raise it when acme is fast

    fn find(program: Program<'_>, node: Node<'_>) -> Result<Operator, Refusal> {
        find(program, node)
    }
}

export_plugin!(Interpreted<Acme>);
// [end]

type Results = Result<Vec<Vec<f32>>>;

// --- which nodes are taken

fn last_dim(p: Program<'_>, node: Node<'_>, dim: usize) -> Result<(), Refusal> {
    let last = dims(p, node.arg(0)).len() as i64 - 1;
    let is_last = matches!(node.arg(dim), Arg::Int(d) if d == last);
    refuse_unless(is_last, Reason::Argument, "takes the last dim only")
}

const MEAN: f64 = 1.0; // PyTorch's Reduction; SUM is 2

fn reduction(node: Node<'_>, i: usize) -> Result<(), Refusal> {
    let known = matches!(node.arg(i), Arg::Int(1 | 2));
    refuse_unless(known, Reason::Argument, "takes the reductions mean and sum")
}

/// (input, target, reduction) from argument `first` on.
fn mse(p: Program<'_>, node: Node<'_>, first: usize) -> Result<(), Refusal> {
    reduction(node, first + 2)?;
    let same = dims(p, node.arg(first)) == dims(p, node.arg(first + 1));
    refuse_unless(same, Reason::Argument, "takes input and target of one shape")
}

/// (input, target, weight, reduction, ignore_index) from argument `first` on.
fn nll(p: Program<'_>, node: Node<'_>, first: usize) -> Result<(), Refusal> {
    refuse_unless(dims(p, node.arg(first)).len() == 2, Reason::Rank, "takes [batch, classes]")?;
    let plain = matches!(node.arg(first + 2), Arg::None);
    refuse_unless(plain, Reason::Argument, "takes no class weights")?;
    reduction(node, first + 3)?;
    float32_but(p, node, Some(first + 1))
}

fn lists(p: Program<'_>, node: Node<'_>) -> Result<(), Refusal> {
    if let (Arg::List(a), Arg::List(b)) = (node.arg(0), node.arg(1)) {
        let same = a.iter().zip(b.iter()).all(|(a, b)| dims(p, a) == dims(p, b));
        refuse_unless(same, Reason::Argument, "takes lists of equal shapes")?;
    }
    Ok(())
}

// [region table]
/// How a node is computed, or why it is not taken.
fn find(p: Program<'_>, node: Node<'_>) -> Result<Operator, Refusal> {
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
        ("aten::nll_loss_forward", "") => return nll(p, node, 0).map(|()| nll_loss as Operator),
        ("aten::nll_loss_backward", "") => return nll(p, node, 1).map(|()| nll_loss_backward as Operator),
        ("aten::permute", "") => permute,
        ("aten::relu", "") => relu,
        ("aten::sum", "dim_IntList") => sum,
        ("aten::threshold_backward", "") => threshold_backward,
        _ => return Err((Reason::UnknownOperator, "does not have this operator")),
    };
    float32(p, node)?;
    Ok(operator)
}
// [end]

// --- moving elements

fn permute(c: &Call<'_>) -> Results {
    let t = c.tensor(0);
    let dense = row_major(t.dims);
    let strides: Vec<i64> = c.indices(1).iter().map(|&d| dense[d as usize]).collect();
    Ok(vec![(0..t.data.len()).map(|i| t.data[offset(c.out_dims(), &strides, i)]).collect()])
}

fn same_elements(c: &Call<'_>) -> Results {
    Ok(vec![c.tensor(0).data.to_vec()]) // reshape, clone
}

fn full(c: &Call<'_>) -> Results {
    Ok(vec![vec![c.number(1) as f32; c.out_count()]])
}

// --- element by element

fn zip(dims: &[i64], a: Tensor<'_>, b: Tensor<'_>, f: impl Fn(f32, f32) -> f32) -> Vec<f32> {
    let count = dims.iter().product::<i64>() as usize;
    if a.data.len() == count && b.data.len() == count {
        return a.data.iter().zip(b.data).map(|(&x, &y)| f(x, y)).collect();
    }
    let (sa, sb) = (broadcast(a, dims), broadcast(b, dims));
    (0..count).map(|i| f(a.data[offset(dims, &sa, i)], b.data[offset(dims, &sb, i)])).collect()
}

fn add(c: &Call<'_>) -> Results {
    let alpha = c.number(2) as f32;
    Ok(vec![zip(c.out_dims(), c.tensor(0), c.tensor(1), |x, y| x + alpha * y)])
}

fn mul(c: &Call<'_>) -> Results {
    Ok(vec![zip(c.out_dims(), c.tensor(0), c.tensor(1), |x, y| x * y)])
}

fn relu(c: &Call<'_>) -> Results {
    Ok(vec![c.tensor(0).data.iter().map(|&x| if x < 0.0 { 0.0 } else { x }).collect()]) // NaN stays
}

fn threshold_backward(c: &Call<'_>) -> Results {
    let threshold = c.number(2) as f32;
    Ok(vec![zip(c.out_dims(), c.tensor(0), c.tensor(1), |grad, x| if x <= threshold { 0.0 } else { grad })])
}

/// The step of SGD.
fn foreach_add(c: &Call<'_>) -> Results {
    let alpha = c.number(2) as f32;
    let pairs = c.list(0).into_iter().zip(c.list(1));
    Ok(pairs.map(|(a, b)| zip(a.dims, a, b, |x, y| x + alpha * y)).collect())
}

/// Momentum.
fn foreach_mul(c: &Call<'_>) -> Results {
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

fn mm(c: &Call<'_>) -> Results {
    let mut out = vec![0.0; c.out_count()];
    multiply(c.tensor(0), c.tensor(1), &mut out, 1.0);
    Ok(vec![out])
}

/// beta * bias + alpha * a @ b
fn addmm(c: &Call<'_>) -> Results {
    let (bias, beta) = (c.tensor(0), c.number(3) as f32);
    let mut out = zip(c.out_dims(), bias, bias, |x, _| if beta == 0.0 { 0.0 } else { beta * x });
    multiply(c.tensor(1), c.tensor(2), &mut out, c.number(4) as f32);
    Ok(vec![out])
}

fn sum(c: &Call<'_>) -> Results {
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

fn log_softmax(c: &Call<'_>) -> Results {
    let of_row = |row: &[f32]| {
        let most = row.iter().copied().fold(f32::NEG_INFINITY, f32::max);
        let total: f32 = row.iter().map(|x| (x - most).exp()).sum();
        row.iter().map(|x| x - most - total.ln()).collect::<Vec<_>>()
    };
    Ok(vec![rows(c.tensor(0)).flat_map(of_row).collect()])
}

fn log_softmax_backward(c: &Call<'_>) -> Results {
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

fn nll_loss(c: &Call<'_>) -> Results {
    let input = c.tensor(0);
    let places = places(input, c.indices(1), c.number(4))?;
    let weight = places.len() as f32;
    let loss = -places.iter().map(|&at| input.data[at]).sum::<f32>();
    Ok(vec![vec![if c.number(3) == MEAN { loss / weight } else { loss }], vec![weight]])
}

fn nll_loss_backward(c: &Call<'_>) -> Results {
    let grad = c.tensor(0).data[0];
    let step = if c.number(4) == MEAN { grad / c.tensor(6).data[0] } else { grad };
    let mut out = vec![0.0; c.out_count()];
    for at in places(c.tensor(1), c.indices(2), c.number(5))? {
        out[at] = -step;
    }
    Ok(vec![out])
}

fn mse_loss(c: &Call<'_>) -> Results {
    let (a, b) = (c.tensor(0), c.tensor(1));
    let total: f32 = a.data.iter().zip(b.data).map(|(x, y)| (x - y) * (x - y)).sum();
    Ok(vec![vec![if c.number(2) == MEAN { total / a.data.len() as f32 } else { total }]])
}

fn mse_loss_backward(c: &Call<'_>) -> Results {
    let n = if c.number(3) == MEAN { c.out_count() as f32 } else { 1.0 };
    let step = 2.0 * c.tensor(0).data[0] / n;
    Ok(vec![zip(c.out_dims(), c.tensor(1), c.tensor(2), |x, y| step * (x - y))])
}
