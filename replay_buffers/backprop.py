"""Forward and backward passes of plain ReLU networks, written out.

Autograd records a graph, allocates every intermediate and dispatches each step twice; for networks
of this size that costs about as much as the products themselves. Here the products go into tensors
that are kept from call to call, and gradients straight into the parameters' `.grad`. The learners
and CT's energy model step their networks with it.
"""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn


@dataclass(frozen=True)
class Layer:
    """Views of one layer's parameters and their gradients.

    Attributes:
        weight, weight_grad: `[in, out]`, or `[C, in, out]` for C networks side by side.
        bias, bias_grad: `[1, out]` or `[C, 1, out]`.
    """

    weight: Tensor
    bias: Tensor
    weight_grad: Tensor
    bias_grad: Tensor


def gradient_of(parameter: Tensor) -> Tensor:
    """The parameter's `.grad`, zeros where it had none."""
    if parameter.grad is None:
        parameter.grad = torch.zeros_like(parameter)
    return parameter.grad


def linear_layers(net: Iterable[nn.Module]) -> list[Layer]:
    """The linear layers of a sequence that has nothing but ReLU between them."""
    return [
        Layer(
            layer.weight.data.T,
            layer.bias.data[None],
            gradient_of(layer.weight).T,
            gradient_of(layer.bias)[None],
        )
        for layer in net
        if isinstance(layer, nn.Linear)
    ]


class Backprop:
    """Forward and backward through layers with ReLU between them.

    Tensors that are returned live until the next call of the same method.
    """

    def __init__(self, layers: Sequence[Layer]) -> None:
        self._layers = list(layers)
        self._inputs: list[Tensor] = []
        self._kept: dict[tuple[str, int], Tensor] = {}

    def _room(self, what: str, layer: int, shape: tuple[int, ...]) -> Tensor:
        """A tensor to write into: one for each purpose, as large as its largest shape so far."""
        size = math.prod(shape)
        kept = self._kept.get((what, layer))
        if kept is None or len(kept) < size:
            kept = self._kept[what, layer] = torch.empty(size)
        return kept[:size].view(shape)

    def forward(self, x: Tensor) -> Tensor:
        """Outputs `[B, out]` or `[C, B, out]` of inputs `[B, in]`; keeps what `backward` needs."""
        if self._layers[0].weight.dim() == 3:
            x = x.expand(len(self._layers[0].weight), -1, -1)
        self._inputs = []
        for number, layer in enumerate(self._layers):
            self._inputs.append(x)
            room = self._room("forward", number, (*x.shape[:-1], layer.weight.shape[-1]))
            x = torch.matmul(x, layer.weight, out=room).add_(layer.bias)
            if number < len(self._layers) - 1:
                x.relu_()
        return x

    def backward(
        self, gradient: Tensor, *, parameters: bool = True, inputs: bool = False
    ) -> Tensor | None:
        """Carry the gradient with respect to the last outputs back through the layers.

        Args:
            gradient: of the first rows of the last forward pass, `[b, out]` or `[C, b, out]` with
                b <= B; the other rows don't concern the loss.
            parameters: overwrite the parameters' `.grad`.
            inputs: also return the gradient with respect to the inputs, of shape `[b, in]` or
                `[C, b, in]`.
        """
        for number in reversed(range(len(self._layers))):
            layer = self._layers[number]
            x = self._inputs[number][..., : gradient.shape[-2], :]
            if parameters:
                torch.matmul(x.mT, gradient, out=layer.weight_grad)
                torch.sum(gradient, -2, keepdim=True, out=layer.bias_grad)
            if number == 0 and not inputs:
                return None
            room = self._room("backward", number, x.shape)
            gradient = torch.matmul(gradient, layer.weight.mT, out=room)
            if number > 0:
                # Zero where ReLU gave zero.
                torch.ops.aten.threshold_backward.grad_input(gradient, x, 0, grad_input=gradient)
        return gradient
