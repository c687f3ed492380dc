"""A plane with discs, rings and lines, as an rgb array, in numpy alone."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

Colour = tuple[int, int, int]
INK: Colour = (32, 35, 42)
GOAL: Colour = (46, 139, 87)
ROBOT: Colour = (200, 62, 48)
PATH: Colour = (120, 130, 150)
WIND: Colour = (60, 110, 190)
_PAPER: Colour = (250, 250, 248)
_GRID: Colour = (226, 227, 230)


class Canvas:
    """A square picture of [-extent, extent]^2, y upwards.

    Attributes:
        pixels: `[size, size, 3]` uint8.
    """

    def __init__(self, extent: float, size: int = 320) -> None:
        self.pixels = np.full((size, size, 3), _PAPER, np.uint8)
        self._pixel = 2 * extent / size
        centres = (np.arange(size) + 0.5) * self._pixel - extent
        self._x, self._y = np.meshgrid(centres, -centres)
        for tick in np.arange(-np.floor(extent / 0.5), np.floor(extent / 0.5) + 1) * 0.5:
            self._paint(np.abs(self._x - tick) < self._pixel / 2, _GRID)
            self._paint(np.abs(self._y - tick) < self._pixel / 2, _GRID)
        for across in (self._x, self._y):
            self._paint(np.abs(across) < self._pixel, _GRID)

    def disc(self, centre: Any, radius: float, colour: Colour) -> None:
        """A filled disc, at least three pixels wide."""
        self._paint(self._distance(centre) <= max(radius, 1.5 * self._pixel), colour)

    def ring(self, centre: Any, radius: float, colour: Colour) -> None:
        """A circle two pixels wide."""
        self._paint(np.abs(self._distance(centre) - radius) <= self._pixel, colour)

    def line(self, start: Any, end: Any, colour: Colour) -> None:
        """A straight line two pixels wide."""
        (x0, y0), (x1, y1) = start, end
        dx, dy = x1 - x0, y1 - y0
        square = dx * dx + dy * dy
        along = 0.0
        if square > 0:
            along = np.clip(((self._x - x0) * dx + (self._y - y0) * dy) / square, 0, 1)
        distance = np.hypot(self._x - x0 - along * dx, self._y - y0 - along * dy)
        self._paint(distance <= self._pixel, colour)

    def _distance(self, centre: Any) -> NDArray[np.float64]:
        return np.hypot(self._x - centre[0], self._y - centre[1])

    def _paint(self, where: NDArray[np.bool_], colour: Colour) -> None:
        self.pixels[where] = colour
