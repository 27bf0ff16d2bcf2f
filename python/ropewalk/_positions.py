"""Positions of text, images and videos by the rules of models, and rotations by any generators."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from ropewalk import _core
from ropewalk._arrays import array, float64, int64, number, whole
from ropewalk._rotary import Rotation

__all__ = ["Generators", "PositionBuilder", "TokenPositions", "vision_positions"]


class TokenPositions(NamedTuple):
    """Positions of the tokens of a sequence."""

    positions: np.ndarray  #: int64 [axes, tokens], for `rotate`
    denominator: int  #: they are in units of 1 / denominator: rotate by `Rotation.per_unit(denominator)`; 1 for all models
    next: int  #: the position of the next text token


class PositionBuilder:
    """Positions of one sequence from its first token to its last, for a rotation on several axes. A text token has one
    position on all axes. A grid of height x width patches is first merged by spatial_merge in both directions; its tokens are
    row-major, frame by frame.

        rw.PositionBuilder("qwen2-vl").text(3).image(4, 4).text(2).build().positions
        [[0 1 2 3 3 3 3 5 6], [0 1 2 3 3 4 4 5 6], [0 1 2 3 4 3 4 5 6]]        # time, height, width

    Args:
        rule: "flat" (one axis), "qwen2-vl", "qwen2.5-vl" (time in seconds), "qwen3-vl" (timestamps between frames), "ernie"
            (4.5-VL), "xd-rope" (HunYuan-VL, four axes), "rope-tie" and "rope-tv" (Su 2024, kexue.fm/archives/10040 and 10352).
        spatial_merge, temporal_merge: patches of a side, and with "ernie" frames, that become one token.
        tokens_per_second: of "qwen2.5-vl".
        start: position of the first token.
    """

    __slots__ = ("_core",)

    def __init__(
        self,
        rule: str,
        *,
        spatial_merge: int = 2,
        temporal_merge: int = 2,
        tokens_per_second: float = 2.0,
        start: int = 0,
    ):
        self._core = _core.make_position_builder(
            str(rule),
            whole("spatial_merge", spatial_merge),
            whole("temporal_merge", temporal_merge),
            number("tokens_per_second", tokens_per_second),
            whole("start", start),
        )

    @property
    def axes(self) -> int:
        """The number of position axes."""
        return self._core.axes

    def text(self, tokens: int) -> PositionBuilder:
        """Tokens of text."""
        self._core.text(whole("tokens", tokens))
        return self

    def image(self, height: int, width: int) -> PositionBuilder:
        """An image; its size in patches before merging, multiples of spatial_merge."""
        self._core.image(whole("height", height), whole("width", width))
        return self

    def video(self, frames: int, height: int, width: int, seconds_per_grid: float = 1.0) -> PositionBuilder:
        """A video of `frames` temporal patches, as the model's processor counts them. seconds_per_grid: of "qwen2.5-vl"."""
        sizes = (whole(name, n) for name, n in (("frames", frames), ("height", height), ("width", width)))
        self._core.video(*sizes, number("seconds_per_grid", seconds_per_grid))
        return self

    def timestamped_video(self, timestamp_tokens: Any, height: int, width: int) -> PositionBuilder:
        """ "qwen3-vl": a video whose frame i comes after timestamp_tokens[i] tokens of text."""
        tokens = int64("timestamp_tokens", timestamp_tokens).ravel().tolist()
        self._core.timestamped_video(tokens, whole("height", height), whole("width", width))
        return self

    def build(self) -> TokenPositions:
        """The positions so far."""
        return TokenPositions(*self._core.build())


def vision_positions(frames: int, height: int, width: int, merge: int = 2) -> np.ndarray:
    """The rows and columns of the patches of a vision tower with 2-D rotary, in the order of Qwen2-VL and its successors:
    merge x merge blocks one after the other. int64 [2, frames height width]."""
    sizes = (whole(name, n) for name, n in (("frames", frames), ("height", height), ("width", width), ("merge", merge)))
    return _core.vision_positions(*sizes)[0]


class Generators:
    """A rotation by any generators, of which RoPE is a special case: a token at `position` (one number an axis) is multiplied
    by exp(sum over axes of position[a] values[a]). LieRE learns dense ones (Ostmeier et al. 2024, arXiv 2406.10322, section
    3). In double, for research and as a reference.

    Attributes:
        values: float64 [axes, blocks, block, block], skew-symmetric; a head has blocks times block elements.
    """

    __slots__ = ("values",)

    def __init__(self, values: Any):
        self.values = float64("values", values, (None, None, None, None))
        _core.largest_commutator(self.values)

    @staticmethod
    def of(rotation: Rotation) -> Generators:
        """Those of a rotary embedding."""
        return Generators(_core.rotary_generators(rotation._core))

    def largest_commutator(self) -> float:
        """The largest element of |G_a G_b - G_b G_a|: 0 where scores depend on differences of positions alone."""
        return _core.largest_commutator(self.values)

    def matrix(self, position: Any) -> np.ndarray:
        """The rotation at a position [axes], float64 [blocks, block, block]."""
        return _core.rotation_matrix(self.values, float64("position", position))

    def rotate(self, x: Any, positions: Any, transpose: bool = False) -> np.ndarray:
        """x [tokens, heads, head_dim], of any float type, at positions [axes, tokens] or [tokens], which may be fractions; a
        new array. transpose: multiplied by the transpose, which is the inverse and the gradient."""
        out = array("x", x).copy()
        _core.rotate_general(self.values, out, float64("positions", positions), bool(transpose))
        return out

    def __repr__(self) -> str:
        axes, blocks, block, _ = self.values.shape
        return f"Generators(axes={axes}, blocks={blocks}, block={block})"
