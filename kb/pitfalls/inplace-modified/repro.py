"""Two optimizers: the discriminator is stepped between a forward pass and its backward."""

import sys

import torch
from torch import nn
from torch.nn.functional import softplus


# part: fixed
def train_step(
    generator: nn.Module,
    discriminator: nn.Module,
    optimizer_g: torch.optim.Optimizer,
    optimizer_d: torch.optim.Optimizer,
    real: torch.Tensor,
    noise: torch.Tensor,
) -> None:
    """One step of both; the generator's loss is computed after the discriminator's step."""
    fake = generator(noise)
    loss_d = (softplus(-discriminator(real)) + softplus(discriminator(fake.detach()))).mean()
    optimizer_d.zero_grad()
    loss_d.backward()
    optimizer_d.step()  # changes the discriminator's weights in place
    loss_g = softplus(-discriminator(fake)).mean()
    optimizer_g.zero_grad()
    loss_g.backward()
    optimizer_g.step()


# end: fixed


def train_step_with_one_forward(generator, discriminator, optimizer_g, optimizer_d, real, noise):
    fake = generator(noise)
    score = discriminator(fake)
    loss_g = softplus(-score).mean()
    loss_d = (softplus(-discriminator(real)) + softplus(score)).mean()
    optimizer_d.zero_grad()
    loss_d.backward(retain_graph=True)
    optimizer_d.step()
    optimizer_g.zero_grad()
    loss_g.backward()
    optimizer_g.step()


generator = nn.Linear(4, 8)
discriminator = nn.Sequential(nn.Linear(8, 8), nn.LeakyReLU(0.2), nn.Linear(8, 1))
optimizers = [torch.optim.SGD(net.parameters(), lr=0.01) for net in (generator, discriminator)]
step = train_step if "--fixed" in sys.argv else train_step_with_one_forward
for _ in range(3):
    step(generator, discriminator, *optimizers, torch.rand(16, 8), torch.rand(16, 4))
print("ran to its end")
