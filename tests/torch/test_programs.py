"""Whole programs beyond plain training loops: the same losses as eager's."""

import pytest
import torch
from torch import nn
from torch.nn import functional


def gan_with_gradient_penalty(device):
    generator = nn.Sequential(nn.Linear(4, 16), nn.LeakyReLU(0.2), nn.Linear(16, 2))
    critic = nn.Sequential(nn.Linear(2, 16), nn.Softplus(), nn.Linear(16, 1))
    noise, real, mix = torch.randn(8, 8, 4), torch.randn(8, 8, 2), torch.rand(8, 8, 1)
    generator.to(device), critic.to(device)
    of_generator = torch.optim.RMSprop(generator.parameters(), 1e-3)
    of_critic = torch.optim.Adam(critic.parameters(), 1e-3, betas=(0.5, 0.9))
    losses = []
    for z, x, a in zip(noise.to(device), real.to(device), mix.to(device), strict=True):
        fake = generator(z)
        between = (a * x + (1 - a) * fake.detach()).requires_grad_()
        (gradient,) = torch.autograd.grad(critic(between).sum(), between, create_graph=True)
        penalty = ((gradient.norm(2, dim=1) - 1) ** 2).mean()
        loss = critic(fake.detach()).mean() - critic(x).mean() + 10 * penalty
        of_critic.zero_grad()
        loss.backward()
        of_critic.step()
        generator_loss = -critic(fake).mean()
        of_generator.zero_grad()
        generator_loss.backward()
        of_generator.step()
        losses += [loss.item(), generator_loss.item()]
    return losses


def physics_informed_network(device):
    """Second derivatives in the loss, a closure, L-BFGS."""
    layers = [nn.Linear(2, 16), nn.Tanh(), nn.Linear(16, 16), nn.Tanh(), nn.Linear(16, 1)]
    model = nn.Sequential(*layers).to(device)
    optimizer = torch.optim.LBFGS(model.parameters(), max_iter=4)
    points = torch.rand(32, 2).to(device)

    def closure():
        optimizer.zero_grad()
        p = points.clone().requires_grad_()
        (g,) = torch.autograd.grad(model(p).sum(), p, create_graph=True)
        (second,) = torch.autograd.grad(g[:, 0].sum(), p, create_graph=True)
        start = torch.cat([points[:, :1], torch.zeros_like(points[:, :1])], 1)
        loss = (g[:, 1:] - 0.1 * second[:, :1]).square().mean()
        loss = loss + (model(start) - torch.sin(3 * points[:, :1])).square().mean()
        loss.backward()
        return loss

    return [optimizer.step(closure).item() for _ in range(5)]


def actor_critic(device):
    """Episodes whose steps ask for values, and a loss over all of them."""
    body, policy, value = nn.Sequential(nn.Linear(4, 16), nn.Tanh()), nn.Linear(16, 2), nn.Linear(16, 1)
    modules = nn.ModuleList([body, policy, value]).to(device)
    optimizer = torch.optim.Adam(modules.parameters(), 1e-2)
    losses = []
    for episode in range(4):
        state, steps = torch.full((4,), 0.1), []
        for t in range(6):
            hidden = body(state.to(device))
            actions = torch.distributions.Categorical(logits=policy(hidden))
            action = torch.tensor((t + episode) % 2).to(device)
            reward = actions.probs[0].item()
            steps.append((actions.log_prob(action), value(hidden).squeeze(), reward))
            state = state * 0.9 + reward * 0.1
        total, loss = 0.0, 0.0
        for log_probability, guess, reward in reversed(steps):
            total = reward + 0.9 * total
            loss = loss - log_probability * (total - guess.detach())
            loss = loss + functional.smooth_l1_loss(guess, torch.tensor(total, device=device))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return losses


def sequence_model(device):
    """An LSTM over packed sequences of several lengths, its state carried from batch to batch."""
    embed, lstm, head = nn.Embedding(11, 8), nn.LSTM(8, 12, 2, batch_first=True), nn.Linear(12, 11)
    model = nn.ModuleList([embed, lstm, head]).to(device)
    optimizer = torch.optim.Adam(model.parameters(), 1e-2)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, 1e-2, total_steps=6)
    state, losses = None, []
    for tokens in torch.randint(11, (6, 3, 9)):
        tokens = tokens.to(device)
        packed = nn.utils.rnn.pack_padded_sequence(embed(tokens[:, :-1]), [8, 5, 2], batch_first=True)
        out, state = lstm(packed, None if state is None else [s.detach() for s in state])
        out, _ = nn.utils.rnn.pad_packed_sequence(out, batch_first=True)
        loss = functional.cross_entropy(head(out).flatten(0, 1), tokens[:, 1:].flatten())
        optimizer.zero_grad()
        loss.backward()
        norm = nn.utils.clip_grad_norm_(model.parameters(), 0.5)
        optimizer.step()
        schedule.step()
        losses += [loss.item(), norm.item()]
    return losses


PROGRAMS = [gan_with_gradient_penalty, physics_informed_network, actor_critic, sequence_model]


@pytest.mark.parametrize("program", PROGRAMS)
def test_losses_equal_eager(program):
    losses = {}
    for device in ("cpu", "lazyt"):
        torch.manual_seed(0)
        losses[device] = torch.tensor(program(device))
    torch.testing.assert_close(losses["lazyt"], losses["cpu"], rtol=1e-4, atol=1e-5)
