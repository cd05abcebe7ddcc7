"""A model of many small operators, as tests of what a known step follows at once want it."""

import torch
from torch import nn


class Cell(nn.Module):
    """Views, results of several uses, and a loop."""

    def __init__(self):
        super().__init__()
        self.of_input, self.of_hidden = nn.Linear(5, 16), nn.Linear(4, 16)

    def forward(self, x):
        h = c = torch.zeros(x.shape[1], 4, device=x.device)
        for token in x:
            i, f, g, o = (self.of_input(token) + self.of_hidden(h)).chunk(4, 1)
            c = f.sigmoid() * c + i.sigmoid() * g.tanh()
            h = o.sigmoid() * c.tanh()
        return h
