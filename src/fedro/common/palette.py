"""The colors of all figures, pages and charts.

The second group is the palette of Okabe and Ito, whose colors people with any color vision can tell
apart. This module does not import Matplotlib.
"""

BLUE = "#1f5fa8"
RED = "#c2402a"
GREY = "#8a8f98"
TEXT = "#1c2024"  # letters and lines on a white page

BLACK = "#000000"
DEEP_BLUE = "#0072B2"
VERMILION = "#D55E00"
GREEN = "#009E73"
PINK = "#CC79A7"
ORANGE = "#E69F00"
SKY_BLUE = "#56B4E9"

CATEGORICAL = (DEEP_BLUE, VERMILION, GREEN, PINK, ORANGE, SKY_BLUE)  # in the order of use
