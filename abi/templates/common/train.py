"""Trains a two-layer perceptron with SGD on lazyt, to tell points inside a ring from points outside.

LAZYT_FALLBACK=deny LAZYT_BACKEND=/path/to/lazyt_acme.so python train.py
"""

import lazyt
import torch
from torch import nn

torch.manual_seed(0)
points = torch.rand(512, 2) * 2 - 1
classes = (points.norm(dim=1) < 0.75).long()

net = nn.Sequential(nn.Linear(2, 32), nn.ReLU(), nn.Linear(32, 2)).to("lazyt")
optimizer = torch.optim.SGD(net.parameters(), lr=0.5, momentum=0.9)
x, y = points.to("lazyt"), classes.to("lazyt")
for step in range(200):
    optimizer.zero_grad()
    loss = nn.functional.cross_entropy(net(x), y)
    loss.backward()
    optimizer.step()
    if step % 50 == 49:
        print(f"step {step + 1}: loss {loss.item():.4f}")

with torch.no_grad():
    right = (net(x).cpu().argmax(1) == classes).float().mean().item()
print(f"{lazyt.backend()['name']}: {right:.1%} of the points are told right")
raise SystemExit(0 if right > 0.95 else 1)
