"""A classifier sized for 28 x 28 images meets images of 32 x 32."""

import sys

import torch

num_classes = 10
backbone = torch.nn.Conv2d(3, 8, kernel_size=3, padding=1)
example_batch = torch.rand(4, 3, 32, 32)

if "--fixed" in sys.argv:
    # part: fixed
    head = torch.nn.Sequential(
        torch.nn.AdaptiveAvgPool2d((7, 7)),  # any image size gives 7 x 7
        torch.nn.Flatten(),  # keeps the batch dimension
        torch.nn.LazyLinear(num_classes),  # in_features is set by the first batch
    )
    with torch.no_grad():
        head(backbone(example_batch))  # before the optimizer and before DDP
    # end: fixed
else:
    head = torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(8 * 28 * 28, num_classes))

scores = head(backbone(example_batch))
scores.sum().backward()
print(f"scores of shape {tuple(scores.shape)}")
print("ran to its end")
