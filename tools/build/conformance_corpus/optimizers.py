"""Steps of optimizers over lists of parameters."""

import itertools

import torch
from conformance_corpus.corpus import Corpus, grid

STEPS = [3.0, 7.0]


def make(folder):
    c = Corpus("optimizers", "Steps of optimizers over lists of parameters.")
    shapes = ((2, 3), (5,))
    params, grads, means = ([grid(*s) for s in shapes] for _ in range(3))
    squares, tops = ([grid(*s, positive=True) for s in shapes] for _ in range(2))
    steps = [torch.tensor(v) for v in STEPS]
    rate = torch.tensor(0.0625)
    # Updates are of the order of the rate; a parameter is rounded once.
    bound = {"rel": 8, "terms": 8}

    def case(name, op, args, call):
        c.case(name, f"aten::{op}", args, lambda *given: [t for part in call(*given) for t in part], **bound)

    for kind, amsgrad, maximize in itertools.product(("adam", "adamw"), (False, True), (False, True)):
        for decay in (0.0, 0.125):
            flags = (
                f"{'_amsgrad' if amsgrad else ''}{'_maximize' if maximize else ''}{'_decay' if decay else ''}"
            )
            numbers = [0.875, 0.9375, decay, 2.0**-20, amsgrad, maximize, None, None]
            lists = [params, grads, means, squares, tops if amsgrad else [], steps]

            def call(p, g, m, v, top, step, lr, *rest, kind=kind):
                b1, b2, wd, eps, ams, most, *_ = rest
                names = {
                    "beta1": b1,
                    "beta2": b2,
                    "weight_decay": wd,
                    "eps": eps,
                    "amsgrad": ams,
                    "maximize": most,
                }
                of = torch.ops.aten._fused_adam if kind == "adam" else torch.ops.aten._fused_adamw
                return of.default(p, g, m, v, top, [s.float() for s in step], lr=float(lr), **names)

            case(f"{kind}{flags}", f"_fused_{kind}", [*lists, 0.0625, *numbers], call)
            if not maximize:
                case(f"{kind}{flags}_lr", f"_fused_{kind}.tensor_lr", [*lists, rate, *numbers], call)
    for momentum, nesterov, maximize, first in (
        (0.0, False, False, False),
        (0.875, False, False, True),
        (0.875, False, True, False),
        (0.875, True, False, False),
    ):
        tag = f"{'_momentum' if momentum else ''}{'_nesterov' if nesterov else ''}"
        tag += f"{'_maximize' if maximize else ''}{'_first' if first else ''}"
        lists = [params, grads, means if momentum else []]

        def call(p, g, m, wd, mu, lr, damp, nest, most, start, *_):
            names = {"weight_decay": wd, "momentum": mu, "lr": float(lr), "dampening": damp, "nesterov": nest}
            return torch.ops.aten._fused_sgd.default(p, g, m, **names, maximize=most, is_first_step=start)

        damp = 0.0 if nesterov else 0.25
        rest = [damp, nesterov, maximize, first, None, None]
        case(f"sgd{tag}", "_fused_sgd", [*lists, 0.125, momentum, 0.0625, *rest], call)
        case(f"sgd{tag}_lr", "_fused_sgd.tensor_lr", [*lists, 0.125, momentum, rate, *rest], call)
    for maximize in (False, True):

        def call(p, g, s, step, lr, slower, wd, eps, most, *_):
            names = {"lr": lr, "lr_decay": slower, "weight_decay": wd, "eps": eps, "maximize": most}
            return torch.ops.aten._fused_adagrad.default(p, g, s, [v.float() for v in step], **names)

        numbers = [0.0625, 0.0625, 0.125, 2.0**-20, maximize, None, None]
        case(
            f"adagrad{'_maximize' if maximize else ''}",
            "_fused_adagrad",
            [params, grads, squares, steps, *numbers],
            call,
        )
    c.write(folder)
