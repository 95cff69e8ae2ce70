from __future__ import annotations

import torch


# part: numbers
def train_epoch(model, batches, loss_of, optimizer, log_every: int = 50) -> float:
    """Mean loss of one epoch; what is summed up has no graph behind it."""
    total = torch.zeros((), device=next(model.parameters()).device)
    count = 0
    for batch in batches:
        optimizer.zero_grad(set_to_none=True)
        loss = loss_of(model, batch)
        loss.backward()
        optimizer.step()
        total += loss.detach()  # stays on the device: no stall, no graph
        count += 1
        if count % log_every == 0:
            print(f"step {count} loss {(total / count).item():.4f}")  # the only wait
    return (total / max(count, 1)).item()


# end: numbers


# part: state
def train_sequence(model, chunks, loss_of, optimizer, state) -> None:
    """Truncated back-propagation: each chunk starts from the values of the last state only."""
    for chunk in chunks:
        if state is not None:
            state = tuple(s.detach() for s in state) if isinstance(state, tuple) else state.detach()
        optimizer.zero_grad(set_to_none=True)
        output, state = model(chunk, state)
        loss_of(output, chunk).backward()
        optimizer.step()


# end: state
