"""Which of our networks have written-out passes."""

from torch import nn

from interreplay.algorithms.modules import MLP, Critics
from replay_buffers.backprop import Layer, gradient_of, linear_layers


def layers_of(net: nn.Module, critic: int | None = None) -> list[Layer] | None:
    """The layers of an `MLP`, of `Critics`, or of its member `critic` alone.

    None for any other network: only autograd knows how to differentiate that.
    """
    if type(net) is MLP:
        return linear_layers(net)
    if type(net) is Critics:
        which = slice(None) if critic is None else critic
        return [
            Layer(w.data[which], b.data[which], gradient_of(w)[which], gradient_of(b)[which])
            for w, b in zip(net.weights, net.biases, strict=True)
        ]
    return None
